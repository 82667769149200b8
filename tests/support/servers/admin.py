"""A server that answers like Pulsar's admin interface, and badly on request."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

Answer = Callable[["Handler"], None]


class AdminServer:
    """An HTTP server on loopback; `answers` says what it has, by path below /admin/v2."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.answers: dict[str, Any] = {}
        """A JSON value, or a function that answers; anything else is not found."""
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.clients: list[tuple[str, int]] = []
        """Address of the other end for each request: another connection has another port."""
        self.ended = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Own", (Handler,), {"of": self}))
        self._server.daemon_threads = True
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
            # A client that does not trust the certificate goes away, and that is no news.
            setattr(self._server, "handle_error", lambda *_: None)  # noqa: B010
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> AdminServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def topic(self, name: str, **documents: Any) -> None:
        """Answer for a topic: internal, info, stats; each a value or a function."""
        path = f"persistent/{name}"
        for key, end in (
            ("internal", "internalStats"),
            ("info", "internal-info"),
            ("stats", "stats"),
        ):
            self.answers[f"{path}/{end}"] = documents[key]

    def forget(self, name: str) -> None:
        """Delete a topic: its documents are answered as a broker does then."""
        path = f"persistent/{name}"
        for end in ("internalStats", "stats"):
            self.answers[f"{path}/{end}"] = status(404, {"reason": f"Topic {name} not found"})
        self.answers[f"{path}/internal-info"] = status(500, "<html>")


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    of: AdminServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer with what there is."""
        path = unquote(urlsplit(self.path).path).removeprefix("/admin/v2/")
        self.of.asked.append(path)
        self.of.headers.append(dict(self.headers))
        self.of.clients.append(self.client_address)
        answer = self.of.answers.get(path)
        if answer is None:
            answer = status(404, {"reason": f"{path} not found"})
        if callable(answer):
            answer(self)
        else:
            self.send(200, answer)

    def send(self, code: int, body: Any, **headers: str) -> None:
        """Send a whole answer; text is sent as it is, all else as JSON."""
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Be quiet."""


def status(code: int, body: Any = "", **headers: str) -> Answer:
    """An answer with a status."""
    return lambda handler: handler.send(code, body, **headers)


def hang(handler: Handler) -> None:
    """Answer nothing until the server ends."""
    handler.of.ended.wait(30)
    handler.close_connection = True


def trickle(handler: Handler) -> None:
    """A whole answer, a byte at a time, for ever longer than anyone waits."""
    try:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n[")
        while not handler.of.ended.is_set():
            handler.wfile.write(b" ")
            time.sleep(0.02)
    except OSError:
        pass
    handler.close_connection = True


def trickle_headers(handler: Handler) -> None:
    """Headers without an end, a byte at a time."""
    try:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
        while not handler.of.ended.is_set():
            handler.wfile.write(b"x")
            time.sleep(0.02)
    except OSError:
        pass
    handler.close_connection = True


def break_off(handler: Handler) -> None:
    """Less than was announced."""
    handler.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"ledgers": [')
    handler.close_connection = True


def break_off_chunked(handler: Handler) -> None:
    """A chunk, and not the one that ends the answer."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n[1]\r\n")
    handler.close_connection = True


def chunked(handler: Handler) -> None:
    """`[1, 2]` in two chunks."""
    handler.wfile.write(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n[1,\r\n3\r\n 2]\r\n0\r\n\r\n"
    )


def in_turn(*answers: Any) -> Answer:
    """One answer after the other; the last one stays."""
    left = list(answers)

    def answer(handler: Handler) -> None:
        now = left.pop(0) if len(left) > 1 else left[0]
        if callable(now):
            now(handler)
        else:
            handler.send(200, now)

    return answer
