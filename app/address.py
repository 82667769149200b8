"""The one reading of HTTP addresses: it decides who is asked, and the connection is made from it.

Parsers disagree about `http://a\\@b/`, a port in other digits, a tab or an encoded host. An address
that is not plain is no address here, so that every later reader takes its parts as this one does.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple
from urllib.parse import urljoin

_HTTP = re.compile(
    r"(?P<scheme>https?)://(?:(?P<login>[\w.~!$&'()*+,;=:%-]+)@)?(?:\[(?P<six>[0-9a-f:.]+)\]|(?P<host>\w(?:[\w.-]*\w)?))"
    r"(?::(?P<port>[0-9]{1,5}))?(?P<target>(?:[/?][!-~]*)?)",
    re.ASCII | re.IGNORECASE,
)
PORTS = {"http": 80, "https": 443}


class HttpOrigin(NamedTuple):
    """Whom a request goes to: the scheme and the host are in lower case."""

    scheme: str
    host: str
    """A name or an IPv4 address as it is written, or an IPv6 address in brackets in its short form."""
    port: int

    @property
    def url(self) -> str:
        """The origin as an address, without the port of its scheme."""
        port = "" if self.port == PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{self.host}{port}"


class Address(NamedTuple):
    """Whom a request goes to, and what is asked for: a path and a query, possibly empty."""

    origin: HttpOrigin
    target: str
    login: str | None = None
    """User and password, encoded as in the address."""

    @property
    def url(self) -> str:
        """The address as text, which every parser reads alike; without the login."""
        return f"{self.origin.url}{self.target}"


def parsed(url: str, may_log_in: bool = False) -> Address:
    """The parts of an address; a ValueError for one with a fragment, a backslash, a space, a character
    outside ASCII, a zone, a port that is none, or a login where there may be none."""
    found = _HTTP.fullmatch(url)
    login = found and found["login"]
    if found is None or any(mark in url for mark in "\\#") or (login and not may_log_in):
        raise ValueError("is not http://host:port/path or https://host:port/path")
    scheme, six = found["scheme"].lower(), found["six"]
    host = found["host"].lower() if six is None else f"[{ipaddress.IPv6Address(six).compressed}]"
    port = int(found["port"] or PORTS[scheme])
    if not 0 < port < 1 << 16:
        raise ValueError(f"{port} is not a port")
    return Address(HttpOrigin(scheme, host, port), found["target"], login)


def redirected(at: Address, location: str) -> Address:
    """The address that an answer of another names; a ValueError where it is no plain one."""
    if not re.fullmatch("[!-~]+", location):
        raise ValueError("is not an address")
    return parsed(urljoin(at.url, location))
