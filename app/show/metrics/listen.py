"""The address that metrics are served on: whether it is free."""

from __future__ import annotations

import socket

from app.config.metrics import address
from app.errors import UserError

OF_RUN = (
    "another program may hold the port: choose one with metrics.listen; metrics: null serves none"
)
OF_METRICS = "another program may hold the port: choose one with --listen HOST:PORT"


def require_free(listen: str, remedy: str = OF_RUN) -> None:
    """UserError where nothing can listen on `listen` (HOST:PORT) now."""
    host, port = address(listen)
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as server:
            # As the server does: an address that a closed connection still holds is free.
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(where)
            server.listen(1)
    except OSError as error:
        raise taken(listen, error, remedy) from error


def taken(listen: str, error: OSError, remedy: str) -> UserError:
    """The error for an address that cannot be listened on."""
    return UserError(f"metrics.listen: {listen}: {error.strerror or error}\n{remedy}")
