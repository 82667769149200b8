"""The address that metrics are served on: whether it is free."""

from __future__ import annotations

import socket

from app.config.metrics import address
from app.errors import UserError

OF_RUN = (
    "another program may hold the port: choose one with metrics.listen; metrics: null serves none"
)
OF_METRICS = "another program may hold the port: choose one with --listen HOST:PORT"


def listening(host: str, port: int, backlog: int) -> socket.socket:
    """A socket that listens on an address; an OSError where nothing can."""
    family, kind, protocol, _, where = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    server = socket.socket(family, kind, protocol)
    try:
        # An address that a closed connection still holds is free.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(where)
        server.listen(backlog)
    except OSError:
        server.close()
        raise
    return server


def require_free(listen: str, remedy: str = OF_RUN) -> None:
    """UserError where nothing can listen on `listen` (HOST:PORT) now."""
    try:
        listening(*address(listen), 1).close()
    except OSError as error:
        raise taken(listen, error, remedy) from error


def taken(listen: str, error: OSError, remedy: str) -> UserError:
    """The error for an address that cannot be listened on."""
    return UserError(f"metrics.listen: {listen}: {error.strerror or error}\n{remedy}")
