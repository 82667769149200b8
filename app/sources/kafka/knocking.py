"""What answers at the addresses of a Kafka cluster, before a client of Java's connects to them.

Java's client allocates in the JVM that Spark shares. Two requests are sent, which every listener answers
without a login: ApiVersions (version 0) and SaslHandshake, whose answer tells a listener with a login
from one without (KIP-35, KIP-43).
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial

from app.sources import ports
from app.sources.ports import (
    MOST_BYTES,
    SECOND_LOOK_S,
    SECONDS,
    Answering,
    BrokenOff,
    Unreachable,
    WrongAnswer,
    connected,
    left,
    named,
    place,
    read,
    wrapped,
)

HOLDS_S, MISSING_S = 10.0, 2.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 10.0, 300.0
WITH_TLS = "security.protocol to SSL or SASL_SSL"
API_VERSIONS, SASL_HANDSHAKE = 18, 17
NO_ERROR, UNSUPPORTED_MECHANISM, ILLEGAL_STATE = 0, 33, 34


class _Ended(BrokenOff):
    """The other end has closed the connection behind the handshake of TLS."""


def answering(options: Mapping[str, str], seconds: float = SECONDS) -> Answering:
    """Knock at all servers of a client's options; as `ports.answering`."""
    servers = options.get("bootstrap.servers", "").split(",")
    return ports.answering(servers, partial(_knock, options), seconds)


class Knock:
    """Knocks for one client, from time to time."""

    def __init__(self, options: Mapping[str, str], seconds: float = SECONDS) -> None:
        self._options, self._seconds = options, seconds
        self._servers: list[str] = []
        self.wrong: frozenset[str] = frozenset()
        """The servers at which something else has answered."""
        self._failed: Unreachable | None = None
        self._pause_s, self._next_s = 0.0, float("-inf")

    def servers(self) -> list[str]:
        """The servers that a client may have; Unreachable without any. An answer holds for HOLDS_S, a
        missing one for MISSING_S. Where something else answers, it is asked again after pauses that
        double."""
        if time.monotonic() >= self._next_s:
            self._ask()
        if self._failed is not None:
            raise self._failed
        return self._servers

    def _ask(self) -> None:
        holds_s, doubled_s = HOLDS_S, 0.0
        try:
            self._servers, wrong = answering(self._options, self._seconds)
            self._failed, self.wrong = None, frozenset(wrong)
        except WrongAnswer as error:
            holds_s = doubled_s = min(max(2 * self._pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)
            self._failed = error
        except Unreachable as error:
            holds_s, self._failed = MISSING_S, error
        self._pause_s, self._next_s = doubled_s, time.monotonic() + holds_s


def _knock(options: Mapping[str, str], server: str, until: float) -> None:
    """Ask one server in the way of the options."""
    protocol = options.get("security.protocol", "PLAINTEXT").strip().upper()
    tls, login = protocol.endswith("SSL"), protocol.startswith("SASL_")
    host, port = place(server)
    try:
        _ask(host, port, tls, until, options if login else None)
    except (BrokenOff, ConnectionResetError, BrokenPipeError, ssl.SSLError) as error:
        if tls and (isinstance(error, _Ended) or "ALERT" in (getattr(error, "reason", "") or "")):
            if any(key.startswith("ssl.keystore") for key in options):
                return  # a certificate that is not sent here
            raise WrongAnswer(
                "ends the connection in the handshake of TLS, as a broker that asks for a"
                " certificate: set ssl.keystore.location"
            ) from None
        if _speaks(host, port, not tls):
            how, key = ("without TLS", "PLAINTEXT") if tls else ("as TLS", "SSL")
            key = f"SASL_{key}" if login else f"{key} or SASL_{key}"
            raise WrongAnswer(f"answers {how}: set security.protocol to {key}") from None
        raise BrokenOff from None


def _ask(host: str, port: int, tls: bool, until: float, login: Mapping[str, str] | None) -> None:
    """The two requests; `login` are options with a mechanism of SASL."""
    with ExitStack() as opened:
        sock: socket.socket = opened.enter_context(connected(host, port, left(until)))
        if tls:
            sock = opened.enter_context(wrapped(sock, host))
        try:
            apis = _exchange(sock, API_VERSIONS, 0, b"", until, tls)
        except (BrokenOff, ConnectionError, ssl.SSLError) as error:
            raise (_Ended if tls else BrokenOff) from error
        listed = apis[6 : len(apis) - len(apis) % 6]  # an error, a count, and three numbers of each
        versions = {key: most for key, _, most in struct.iter_unpack(">3h", listed)}
        if SASL_HANDSHAKE not in versions:
            return
        mechanism = "PLAIN" if login is None else login.get("sasl.mechanism", "GSSAPI")
        try:
            version = min(versions[SASL_HANDSHAKE], 1)
            found = _exchange(sock, SASL_HANDSHAKE, version, _text(mechanism), until, tls)
        except (BrokenOff, ConnectionError):
            return  # as servers do that are not Kafka's own; the client asks as well
    code, offered = _mechanisms(found)
    if login is None and code in (NO_ERROR, UNSUPPORTED_MECHANISM):
        raise WrongAnswer(
            f"asks for SASL ({', '.join(offered)}): set security.protocol to"
            f" SASL_{'SSL' if tls else 'PLAINTEXT'}, sasl.mechanism and sasl.jaas.config"
        )
    if login is not None and code == ILLEGAL_STATE:
        raise WrongAnswer(
            f"takes no login: set security.protocol to {'SSL' if tls else 'PLAINTEXT'}"
        )
    if login is not None and code == UNSUPPORTED_MECHANISM:
        raise WrongAnswer(
            f"does not take {mechanism}: set sasl.mechanism (allowed: {', '.join(offered)})"
        )


def _speaks(host: str, port: int, tls: bool) -> bool:
    """Whether a second connection, with or without TLS, has an answer that is one."""
    until = time.monotonic() + SECOND_LOOK_S
    try:
        with connected(host, port, SECOND_LOOK_S) as sock:
            if tls:
                wrapped(sock, host).close()
            else:
                _exchange(sock, API_VERSIONS, 0, b"", until, tls)
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except (BrokenOff, OSError):
        return False
    return True


def _exchange(
    sock: socket.socket, key: int, version: int, body: bytes, until: float, tls: bool
) -> bytes:
    """The body of the answer to one request."""
    asked = struct.pack(">hhi", key, version, key) + _text("weir") + body
    sock.settimeout(left(until))
    sock.sendall(struct.pack(">i", len(asked)) + asked)
    kafkas = partial(named, tls=tls, protocol="Kafka", with_tls=WITH_TLS)
    try:
        begun = read(sock, 8, until)
        size, number = struct.unpack(">ii", begun)
        if not 4 <= size <= MOST_BYTES or number != key:
            raise WrongAnswer(kafkas(begun))
        return read(sock, size - 4, until)
    except BrokenOff as error:
        raise WrongAnswer(kafkas(error.begun)) if error.begun else error from None


def _mechanisms(body: bytes) -> tuple[int, list[str]]:
    """The error and the mechanisms in the answer to SaslHandshake, as far as it is one."""
    try:
        error, count = struct.unpack_from(">hi", body)
        names, at = list[str](), 6
        for _ in range(min(count, 20)):
            (size,) = struct.unpack_from(">h", body, at)
            name = body[at + 2 : at + 2 + size].decode("ascii")
            names.append("".join(c for c in name if c.isalnum() or c in "-_")[:40])
            at += 2 + max(size, 0)
    except (struct.error, UnicodeDecodeError):
        raise WrongAnswer("answers something else than Kafka to a SaslHandshake") from None
    return error, names


def _text(text: str) -> bytes:
    found = text.encode()
    return struct.pack(">h", len(found)) + found
