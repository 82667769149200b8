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
        place = server.strip().rpartition("://")[2].rstrip("/")
        host, sign, number = place.rpartition(":")
        if port and (not sign or place.endswith("]")):
            host, number = place, port
        try:
            socket.create_connection((host.strip("[]"), int(number)), timeout=TIMEOUT_S).close()
        except ValueError:
            reasons.append(f"{server.strip()} is not host:port")
        except OSError as error:
            reasons.append(f"{server.strip()}: {error.strerror or error}")
        else:
            return
    raise Unreachable("; ".join(reasons) or "no server is named")
