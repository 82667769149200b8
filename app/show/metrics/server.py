"""The HTTP server of the exporter: a thread per request, with a limit of connections and of time.

Anybody who reaches the port may open connections, so neither half-open ones nor slow readers may
keep others from an answer.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client.exposition import ThreadingWSGIServer

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

MOST_CONNECTIONS = 32
"""Connections that are served at a time; further ones are closed."""
LONGEST_S = 30.0
"""From a connection to the end of its answer; Prometheus waits 10 s by default."""


class _Handler(WSGIRequestHandler):
    """One request; nothing is logged."""

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


class Server(ThreadingWSGIServer):
    """A thread per connection, at most MOST_CONNECTIONS of them, for at most LONGEST_S each."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._since: dict[socket.socket, float] = {}

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection, unless there are too many."""
        if len(self._since) >= MOST_CONNECTIONS:
            self.shutdown_request(request)
            return
        self._since[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self._since.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Between requests: end the connections that have lasted too long."""
        limit = time.monotonic() - LONGEST_S
        for request, since in list(self._since.items()):
            if since < limit:
                with contextlib.suppress(OSError):  # its thread has just closed it
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away, or sends no HTTP, is no error of the exporter."""


def start(host: str, port: int, app: WSGIApplication) -> tuple[WSGIServer, threading.Thread]:
    """Serve an application on an address; an OSError if it cannot be listened on."""
    family, _, _, _, where = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    server_class: type[Server] = type("Server", (Server,), {"address_family": family})
    at = str(where[0])
    if _is_loopback(at):
        app = _named_locally(app)
    server = make_server(at, port, app, server_class, handler_class=_Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True, name="weir-metrics-server")
    thread.start()
    return server, thread


def _named_locally(app: WSGIApplication) -> WSGIApplication:
    """The application for requests that name a local host. A page in a browser can give a name of
    its own to this machine's address and would read the metrics under it."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if _is_local(str(environ.get("HTTP_HOST", ""))):
            return app(environ, start_response)
        start_response("421 Misdirected Request", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"Host: an address of this machine or localhost\n"]

    return answer


def _is_local(host: str) -> bool:
    """Whether a Host header, which may be absent, names a local address and no other name."""
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    name = name.strip("[]").rstrip(".").lower()
    return not name or name == "localhost" or name.endswith(".localhost") or _is_loopback(name)


def _is_loopback(text: str) -> bool:
    try:
        return ipaddress.ip_address(text.partition("%")[0]).is_loopback
    except ValueError:
        return False
