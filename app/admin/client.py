"""Asks a Pulsar broker's admin interface, with an end to every wait.

A request has `timeout_ms` from its first byte to the last of its answer, however slowly that
trickles in, and is repeated `retries` times with growing pauses. What then has no answer is
`Unanswered`: the poll of that topic is left out. `NotThere` is the broker's own word that
something does not exist. A token that is refused is a UserError.
"""

from __future__ import annotations

import http.client
import io
import json
import socket
import ssl
import threading
import time
from functools import partial
from typing import Any
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from app.admin.settings import WHERE, PulsarAdminSettings
from app.errors import UserError

ADMIN = "/admin/v2"
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
MOST_BYTES = 64 << 20
MOST_HOPS = 5
REDIRECTS = (301, 302, 303, 307, 308)
REFUSED = (401, 403)


class Unanswered(Exception):
    """No answer that can be used, after every attempt."""


class NotThere(Exception):
    """The broker says that what was asked for does not exist."""


class NotAllowed(UserError):
    """The broker refuses what was asked for (403)."""


class Client:
    """Requests to one cluster; threads may share it, each with a session of its own."""

    def __init__(
        self, settings: PulsarAdminSettings, stopping: threading.Event | None = None
    ) -> None:
        if not settings.url:
            raise UserError(
                f"{WHERE}.url: is missing (http://host:port of a broker's admin interface)"
            )
        self.settings = settings
        self.stopping = stopping or threading.Event()
        self.preferred = 0
        """Number of the address that answered last."""
        self.tls = self._tls()

    def session(self, deadline: float | None = None) -> Session:
        """Requests over one connection; none begins after `deadline` (monotonic seconds)."""
        return Session(self, deadline)

    def headers(self) -> dict[str, str]:
        """What every request carries."""
        headers = {"Accept": "application/json", "User-Agent": "weir"}
        token = self.settings.secret()
        if token is not None:
            if not token or not token.isascii() or any(not c.isprintable() for c in token):
                raise UserError(
                    f"{WHERE}.{self._token_key}: is not a token\n"
                    "a token is one line of plain characters, without the word Bearer"
                )
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def refusal(self, status: int, path: str, reason: str) -> UserError:
        """The error for an answer 401 or 403."""
        said = f": {reason}" if reason else ""
        if status == 401:
            given = self.settings.token is not None or self.settings.token_file is not None
            hint = "the token is wrong or has expired" if given else "give a token"
            return UserError(
                f"{WHERE}.{self._token_key}: Pulsar refuses {path} (401{said})\n{hint}"
            )
        return NotAllowed(
            f"{WHERE}.{self._token_key}: Pulsar does not allow {path} (403{said})\n"
            "the token's role needs more rights; policies that it may not read can be taken out of "
            f"{WHERE}.policies"
        )

    @property
    def _token_key(self) -> str:
        return "token_file" if self.settings.token_file is not None else "token"

    def _tls(self) -> ssl.SSLContext | None:
        if not any(url.startswith("https:") for url in self.settings.url):
            return None
        try:
            return ssl.create_default_context(cafile=self.settings.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise UserError(
                f"{WHERE}.ca_file: {self.settings.ca_file} cannot be used ({error})\n"
                "a PEM file with the certificates that are trusted is needed"
            ) from None


class Session:
    """Requests one after the other over one connection, to whichever broker answers them."""

    def __init__(self, client: Client, deadline: float | None) -> None:
        self._client = client
        self._deadline = deadline
        self._connection: http.client.HTTPConnection | None = None
        self._base = ""

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def get(self, path: str) -> Any:
        """The JSON at `path` below the admin interface; None where the answer is empty."""
        attempts = self._client.settings.retries + 1
        error: Unanswered | None = None
        for attempt in range(attempts):
            if attempt:
                pause = min(FIRST_PAUSE_S * 2 ** (attempt - 1), LONGEST_PAUSE_S)
                self._client.stopping.wait(pause)
            if self._client.stopping.is_set():
                raise Unanswered(f"{path}: stopping")
            if self._deadline is not None and time.monotonic() > self._deadline:
                raise error or Unanswered(f"{path}: no time left in this poll")
            try:
                return self._once(path)
            except (OSError, http.client.HTTPException, ValueError, RecursionError) as failed:
                error = Unanswered(f"{path}: {_said(failed)}")
            except Unanswered as failed:
                error = Unanswered(f"{path}: {failed}")
            self._close()
            self._next_address()
        assert error is not None
        raise error

    def _once(self, path: str) -> Any:
        """One attempt, redirects followed."""
        settings = self._client.settings
        if self._connection is None:
            self._base = settings.url[self._client.preferred % len(settings.url)]
        url = f"{self._base}{ADMIN}/{path}"
        for _ in range(MOST_HOPS + 1):
            status, body, location = self._ask(urlsplit(url))
            if status not in REDIRECTS or not location:
                return self._judged(status, body, path)
            there = urljoin(url, location)
            if not there.startswith(("http://", "https://")):
                raise Unanswered(f"sent on to {there}, which is no HTTP address")
            if url.startswith("https:") and not there.startswith("https:"):
                raise Unanswered(f"sent on to {there}, without TLS")
            self._close()
            url = there
        raise Unanswered(f"sent on more than {MOST_HOPS} times")

    def _ask(self, url: SplitResult) -> tuple[int, bytes, str | None]:
        """Status, body and Location of one exchange, within the time of a request."""
        seconds = self._client.settings.timeout_ms / 1000
        deadline = time.monotonic() + seconds
        if self._connection is None:
            self._connection = self._open(url, seconds)
            self._base = f"{url.scheme}://{url.netloc}"
        connection = self._connection
        connection.response_class = partial(_Response, deadline)  # type: ignore[assignment]
        if connection.sock is not None:
            connection.sock.settimeout(seconds)
        target = f"{url.path}?{url.query}" if url.query else url.path
        connection.request("GET", target, headers=self._client.headers())
        response = connection.getresponse()
        body = response.read(MOST_BYTES + 1)
        if len(body) > MOST_BYTES:
            raise Unanswered(f"an answer of more than {MOST_BYTES >> 20} MiB")
        if response.length:
            raise Unanswered("the answer breaks off")
        if response.will_close:
            self._close()
        return response.status, body, response.headers.get("Location")

    def _open(self, url: SplitResult, seconds: float) -> http.client.HTTPConnection:
        if url.scheme == "https":
            # Sent on from http: to a server that must still prove who it is.
            context = self._client.tls or ssl.create_default_context()
            return http.client.HTTPSConnection(url.netloc, timeout=seconds, context=context)
        return http.client.HTTPConnection(url.netloc, timeout=seconds)

    def _judged(self, status: int, body: bytes, path: str) -> Any:
        """What the answer says; an exception for all but a good one."""
        if status == 204 or (status == 200 and not body.strip()):
            return None
        if status == 200:
            return json.loads(body)
        reason = _reason(body)
        if status in REFUSED:
            raise self._client.refusal(status, path, reason or "")
        # A proxy's own 404 knows nothing of topics: only Pulsar gives a reason.
        if status == 404 and reason is not None:
            raise NotThere(reason)
        raise Unanswered(f"status {status}" + (f" ({reason})" if reason else ""))

    def _next_address(self) -> None:
        urls = self._client.settings.url
        if self._base in urls:
            self._client.preferred = (urls.index(self._base) + 1) % len(urls)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Response(http.client.HTTPResponse):
    """An answer that must be complete at a deadline."""

    def __init__(self, deadline: float, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp.close()
        raw = sock.makefile("rb", buffering=0)
        self.fp = io.BufferedReader(_Timed(sock, raw, deadline))


class _Timed(io.RawIOBase):
    """What a socket gives, as long as there is time."""

    def __init__(self, sock: socket.socket, raw: Any, deadline: float) -> None:
        self._sock = sock
        self._raw = raw
        self._deadline = deadline

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read what there is; a TimeoutError at the deadline."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left)
        got: int | None = self._raw.readinto(buffer)
        return got

    def close(self) -> None:
        """Give the socket back."""
        self._raw.close()
        super().close()


def namespace_path(namespace: str) -> str:
    """The path of a namespace, tenant/namespace, as part of an address."""
    return "/".join(quote(part, safe="") for part in namespace.split("/"))


def topic_path(topic: str) -> str:
    """The path of a topic with its scheme, as part of an address."""
    scheme, _, rest = topic.partition("://")
    tenant, namespace, name = rest.split("/", 2)
    return "/".join([scheme, namespace_path(f"{tenant}/{namespace}"), quote(name, safe="")])


def _reason(body: bytes) -> str | None:
    """Why Pulsar refuses; None if the answer is not Pulsar's."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    reason = answer.get("reason") if isinstance(answer, dict) else None
    return " ".join(reason.split())[:300] if isinstance(reason, str) else None


def _said(error: Exception) -> str:
    """An error in a few words."""
    if isinstance(error, TimeoutError):
        return "no whole answer in time"
    if isinstance(error, http.client.IncompleteRead):
        return "the answer breaks off"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, ValueError | RecursionError) and not isinstance(error, OSError):
        return "the answer is not JSON"
    return str(error) or type(error).__name__
