"""Whether a server listens: a port that refuses is told at once, where clients try for longer."""

from __future__ import annotations

import socket

TIMEOUT_S = 5.0


class Unreachable(Exception):
    """No server answered; the message has the addresses and the reasons."""


def knock(servers: str, port: str = "") -> None:
    """Connect to one of the servers, `host:port` each with commas between them; `port` is that of
    a server without one. Raises Unreachable."""
    reasons = []
    for server in servers.split(","):
        try:
            connected(*place(server, port), TIMEOUT_S).close()
        except ValueError:
            reasons.append(f"{server.strip()} is not host:port")
        except OSError as error:
            reasons.append(f"{server.strip()}: {error.strerror or error}")
        else:
            return
    raise Unreachable("; ".join(reasons) or "no server is named")


def place(server: str, port: str = "") -> tuple[str, int]:
    """Host and port of an address, which may begin with a protocol; ValueError for what has none."""
    name = server.strip().rpartition("://")[2].rstrip("/")
    host, sign, number = name.rpartition(":")
    if port and (not sign or name.endswith("]")):
        host, number = name, port
    return host.strip("[]"), int(number)


def connected(host: str, port: int, seconds: float) -> socket.socket:
    """A connection; an OSError where there is none in time, or no such port."""
    try:
        return socket.create_connection((host, port), timeout=seconds)
    except (OverflowError, UnicodeError) as error:
        raise OSError(f"no such address: {error}") from None
