"""A store that is far away: a proxy before an S3 server that waits, refuses, and loses answers.

Requests pass as they are, so their signatures hold. What happens to one is decided by a function of
it, and every one is kept.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any, Literal, NamedTuple

Fault = Literal["refused", "cut", "lost"]
"""`503 SlowDown` in place of the answer, a connection that closes before the request is made, or
after it: then the store has what the client does not know of."""
SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
HOP = {"connection", "content-length", "expect", "transfer-encoding"}


class Request(NamedTuple):
    """A request of a client."""

    method: str
    path: str
    is_sparks: bool
    is_commit: bool
    """Whether it writes an object only where there is none."""

    @property
    def kind(self) -> str:
        """Who asks for what, in two words."""
        listed = self.method == "GET" and "list-type=" in self.path
        return f"{'Spark' if self.is_sparks else 'tables'} {'LIST' if listed else self.method}"


class _Server(ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 128

    def handle_error(self, *_: object) -> None:
        """A client has gone, as those that are killed do."""


class SlowStore:
    """A proxy before the server on a port of loopback."""

    def __init__(
        self, upstream: int, delay_s: float, fault: Callable[[Request], Fault | None] | None = None
    ) -> None:
        self._upstream, self.delay_s = upstream, delay_s
        self._fault = fault or (lambda _: None)
        self.requests: list[tuple[float, Request]] = []
        """Every request, and when it came (s of `time.monotonic`)."""
        self.faults: Counter[str] = Counter()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def endpoint(self) -> str:
        """The address."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        """Take no more requests."""
        self._server.shutdown()
        self._server.server_close()

    def since(self, begin_s: float) -> Counter[str]:
        """Requests since a time, by kind."""
        return Counter(request.kind for at_s, request in list(self.requests) if at_s >= begin_s)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_: Any) -> None:
                """Nothing."""

            def _pass(self) -> None:
                body = _body(self)
                request = Request(
                    self.command,
                    self.path,
                    "Hadoop" in (self.headers.get("User-Agent") or ""),
                    self.headers.get("If-None-Match") == "*",
                )
                store.requests.append((time.monotonic(), request))
                time.sleep(store.delay_s)
                fault = store._fault(request)
                if fault is not None:
                    store.faults[fault] += 1
                if fault == "cut":
                    self.close_connection = True
                elif fault == "refused":
                    self._answer(503, [("Content-Type", "application/xml")], SLOW_DOWN)
                else:
                    status, headers, content = store._asked(self, body)
                    if fault == "lost":
                        self.close_connection = True
                    else:
                        self._answer(status, headers, content)

            def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
                self.send_response_only(status)
                length = str(len(content))
                for name, value in headers:
                    if name.lower() not in HOP:
                        self.send_header(name, value)
                    elif name.lower() == "content-length" and self.command == "HEAD":
                        length = value
                if status != 204:
                    self.send_header("Content-Length", length)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass

        return Handler

    def _asked(
        self, handler: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """The server's answer to a request."""
        connection = http.client.HTTPConnection("127.0.0.1", self._upstream, timeout=60)
        try:
            connection.putrequest(
                handler.command, handler.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in handler.headers.items():
                if name.lower() not in HOP:
                    connection.putheader(name, value)
            if body or handler.command in ("PUT", "POST"):
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            content = answer.read()
            return answer.status, answer.getheaders(), content
        finally:
            connection.close()


def _body(handler: BaseHTTPRequestHandler) -> bytes:
    if "chunked" not in (handler.headers.get("Transfer-Encoding") or ""):
        return handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
    parts = []
    while size := int(handler.rfile.readline().split(b";")[0], 16):
        parts.append(handler.rfile.read(size))
        handler.rfile.readline()
    handler.rfile.readline()
    return b"".join(parts)


def now_and_then(seed: int) -> Callable[[Request], Fault | None]:
    """Faults of a bad day: of a hundred requests two are refused and one is cut; of commits each
    fifth is made and its answer lost."""
    random, lock, commits = Random(seed), threading.Lock(), [0]

    def fault(request: Request) -> Fault | None:
        with lock:
            commits[0] += request.is_commit
            if request.is_commit and commits[0] % 5 == 0:
                return "lost"
            drawn = random.random()
        return "refused" if drawn < 0.02 else "cut" if drawn < 0.03 else None

    return fault
