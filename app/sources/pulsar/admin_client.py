"""Queries a Pulsar broker's admin interface, with a deadline for every wait.

A request has `timeout_ms` from its first byte to the last of its answer, however slow the server
sends, and is repeated `retries` times with growing pauses. A request without an answer is then
`Unanswered`: the poll of that topic is left out. `NotThere` is the broker's own answer that
something does not exist. A refused token is a UserError.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from app.address import Address, HttpOrigin, parsed, redirected
from app.config.pulsar_access import PulsarWeb
from app.errors import UserError
from app.http import NoAnswer, attempts, connections, exchange
from app.sources.polling import Unanswered
from app.terminal.printable import printable

ADMIN = "/admin/v2"
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
MOST_BYTES = 64 << 20
MOST_ELEMENTS = 5_000_000
"""Of a document, by its marks: each takes some 100 bytes, however few the answer has for it."""
MOST_LISTED = 4 << 20
"""Bytes of the list of brokers."""
MOST_HOPS = 5
LIST_S = 60.0
"""Age up to which the cluster's list of brokers is used again."""
REFUSED = (401, 403)
ABSENT = {404: "", 405: "Topic level polic", 500: "No such entry|LastConfirmedEntry is"}
"""Reasons by which something does not exist: policies of topics, which are switched off
(`topicLevelPoliciesEnabled`), and an entry behind the end of its ledger, an unexpected error."""


class NotThere(Exception):
    """The broker answers that the requested object does not exist."""


class NotAllowed(UserError, Unanswered):
    """The broker denies access to the requested object (403)."""


class AdminClient:
    """Requests to one cluster, whose connections are kept; threads may share it."""

    def __init__(
        self,
        settings: PulsarWeb,
        stopping: threading.Event | None = None,
        *,
        root: str = ADMIN,
        most_bytes: int | None = None,
    ) -> None:
        """Paths are below `root`; an answer has at most `most_bytes`."""
        self.where = settings.where
        if not settings.url:
            raise UserError(
                f"{self.where}.url: is missing (http://host:port of a broker's admin interface)"
            )
        self.settings = settings
        self.root, self.most_bytes = root, most_bytes or MOST_BYTES
        self.stopping = stopping or threading.Event()
        self.preferred = 0
        """Number of the address that answered last."""
        self.connections = connections(maxsize=settings.threads, ssl_context=self._tls())
        self._configured = [parsed(url).origin for url in settings.url]
        self._brokers: frozenset[tuple[str, int]] = frozenset()
        self._listed_s = float("-inf")

    def close(self) -> None:
        """Close the connections; the next request opens others."""
        self.connections.clear()

    def session(self, deadline: float | None = None) -> Session:
        """Requests one after the other; none begins after `deadline` (monotonic seconds)."""
        return Session(self, deadline)

    def first(self) -> HttpOrigin:
        """The configured broker to ask."""
        return self._configured[self.preferred]

    def leave(self, broker: HttpOrigin) -> None:
        """Prefer the configured broker after this one."""
        if broker in self._configured:
            self.preferred = (self._configured.index(broker) + 1) % len(self._configured)

    def trusts(self, there: HttpOrigin) -> bool:
        """Whether requests and the token may go there: to configured addresses, and to the brokers
        that one of these lists. Nobody else is asked whom to trust.

        A broker with both ports lists the one without TLS. Its certificate says who it is, so with
        TLS it may have the port of a configured address as well.
        """
        if there in self._configured:
            return True
        if time.monotonic() > self._listed_s + LIST_S:
            self._listed_s = time.monotonic()
            self._brokers = next(filter(None, map(self._list, self._configured)), frozenset())
        ports = {each.port for each in self._configured if each.scheme == there.scheme == "https"}
        return (there.host, there.port) in self._brokers or (
            there.port in ports and any(host == there.host for host, _ in self._brokers)
        )

    def _list(self, broker: HttpOrigin) -> frozenset[tuple[str, int]]:
        """Host and port of the active brokers; none without an answer."""
        seconds, body = self.settings.timeout_ms / 1000, b""
        there = Address(broker, f"{ADMIN}/brokers")
        try:
            with exchange(
                self.connections, "GET", there, seconds, headers=self.headers()
            ) as answer:
                if answer.status == 200:
                    body = answer.read(MOST_LISTED)
            listed = json.loads(body)
        except (NoAnswer, ValueError, RecursionError):
            return frozenset()
        found = set()
        for name in listed if isinstance(listed, list) else ():
            with suppress(ValueError):
                found.add(parsed(f"http://{name}").origin[1:])
        return frozenset(found)

    def headers(self) -> dict[str, str]:
        """The headers of every request."""
        headers = {"Accept": "application/json", "User-Agent": "weir"}
        token = self.settings.secret()
        if token is not None:
            if (
                not token
                or not token.isascii()
                or any(not c.isprintable() or c == " " for c in token)
            ):
                raise UserError(
                    f"{self.where}.{self._token_key}: is not a token\n"
                    "a token is one line of plain characters, without the word Bearer"
                )
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def refusal(self, status: int, path: str, reason: str) -> UserError:
        """The error for an answer 401 or 403."""
        why = f": {reason}" if reason else ""
        if status == 401:
            given = self.settings.token is not None or self.settings.token_file is not None
            hint = "the token is wrong or has expired" if given else "give a token"
            return UserError(
                f"{self.where}.{self._token_key}: Pulsar refuses {path} (401{why})\n{hint}"
            )
        less = (
            f"; policies that it may not read can be taken out of {self.where}.policies"
            if self.root == ADMIN
            else ""
        )
        return NotAllowed(
            f"{self.where}.{self._token_key}: Pulsar does not allow {path} (403{why})\n"
            f"the token's role needs more rights{less}"
        )

    @property
    def _token_key(self) -> str:
        return "token_file" if self.settings.token_file is not None else "token"

    def _tls(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self.settings.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise UserError(
                f"{self.where}.ca_file: {self.settings.ca_file} cannot be used ({error})\n"
                "allowed: a PEM file with the trusted certificates"
            ) from None


class Session:
    """Requests one after the other, to whichever broker answers them."""

    def __init__(self, client: AdminClient, deadline: float | None) -> None:
        self._client = client
        self._deadline = deadline
        self._broker: HttpOrigin | None = None
        """That which has answered last."""

    def get(self, path: str) -> Any:
        """The JSON at `path` below the admin interface; None where the answer is empty."""
        return self._answer(path, lambda body, _: _document(body))

    def content(self, path: str) -> tuple[bytes, Mapping[str, str]]:
        """The bytes at `path` and the headers of the answer."""
        found: tuple[bytes, Mapping[str, str]] = self._answer(path, lambda *both: both)
        return found

    def _answer(self, path: str, read: Callable[[bytes, Mapping[str, str]], Any]) -> Any:
        client, settings = self._client, self._client.settings
        why = "stopping"
        for attempt in attempts(settings.retries, client.stopping, FIRST_PAUSE_S, LONGEST_PAUSE_S):
            if client.stopping.is_set():
                break
            if self._deadline is not None and time.monotonic() > self._deadline:
                why = why if attempt else "no time left in this poll"
                break
            known = self._broker is not None and client.trusts(self._broker)
            broker = self._broker if self._broker is not None and known else client.first()
            try:
                return self._once(broker, path, read)
            except NoAnswer as error:
                why = str(error)
            self._broker = None
            client.leave(broker)
        raise Unanswered(f"{path}: {why}")

    def _once(
        self, broker: HttpOrigin, path: str, read: Callable[[bytes, Mapping[str, str]], Any]
    ) -> Any:
        """One attempt; redirects are followed to brokers, and the token goes with them."""
        client = self._client
        there = Address(broker, f"{client.root}/{path}")
        headers, seconds = client.headers(), client.settings.timeout_ms / 1000
        for _ in range(MOST_HOPS + 1):
            try:
                with exchange(client.connections, "GET", there, seconds, headers=headers) as answer:
                    body = bytearray()
                    for part in answer.stream():
                        body += part
                        if len(body) > client.most_bytes:
                            raise NoAnswer(f"an answer of more than {client.most_bytes >> 20} MiB")
            except NoAnswer as error:
                at = "" if there.origin == broker else f"redirected to {there.origin.url}, "
                raise NoAnswer(f"{at}{error}") from None
            location = answer.get_redirect_location()
            if not location:
                self._broker = there.origin
                self._require_success(answer.status, body, path)
                return read(bytes(body), answer.headers)
            there = self._followed(there, location)
        raise NoAnswer(f"redirected more than {MOST_HOPS} times")

    def _followed(self, at: Address, location: str) -> Address:
        """Where a redirect leads; NoAnswer where no request and no token may go."""
        said = f"redirected to {printable(location)[:200]}"
        try:
            there = redirected(at, location)
        except ValueError:
            raise NoAnswer(f"{said}, which is not an HTTP address") from None
        if at.origin.scheme == "https" != there.origin.scheme:
            raise NoAnswer(f"{said}, without TLS")
        if not self._client.trusts(there.origin):
            raise NoAnswer(
                f"{said}, whose host and port are neither in {self._client.where}.url nor in the"
                " cluster's list of brokers; nothing is sent there"
            )
        return there

    def _require_success(self, status: int, body: bytearray, path: str) -> None:
        """An exception for every status but success."""
        if status in (200, 204):
            return
        reason = _reason(body)
        if status in REFUSED:
            raise self._client.refusal(status, path, reason or "")
        # A proxy's own 404 knows nothing of topics: only Pulsar gives a reason.
        if status in ABSENT and reason is not None and re.search(ABSENT[status], reason):
            raise NotThere(reason)
        raise NoAnswer(f"status {status}" + (f" ({reason})" if reason else ""))


def _document(body: bytes) -> Any:
    """The document of an answer, None for an empty one."""
    if not body.strip():
        return None
    if sum(body.count(mark) for mark in b"[{,:") > MOST_ELEMENTS:
        raise NoAnswer(f"the answer has more than {MOST_ELEMENTS:,} elements")
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise NoAnswer("the answer is not JSON") from None


def namespace_path(namespace: str) -> str:
    """The path of a namespace, tenant/namespace, as part of an address."""
    return "/".join(quote(part, safe="") for part in namespace.split("/"))


def topic_path(topic: str) -> str:
    """The path of a topic with its scheme, as part of an address."""
    scheme, _, rest = topic.partition("://")
    tenant, namespace, name = rest.split("/", 2)
    return "/".join([scheme, namespace_path(f"{tenant}/{namespace}"), quote(name, safe="")])


def _reason(body: bytearray) -> str | None:
    """Why Pulsar refuses; None if the answer is not Pulsar's."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    reason = answer.get("reason") if isinstance(answer, dict) else None
    return " ".join(reason.split())[:300] if isinstance(reason, str) else None
