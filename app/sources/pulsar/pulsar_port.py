"""What answers at the addresses of Pulsar's binary protocol, before Pulsar's client connects to them.

One CONNECT without a login is sent. A broker answers it with CONNECTED, or with an error where it wants a
login: both are frames of the protocol (apache/pulsar, PulsarApi.proto).
"""

from __future__ import annotations

import ssl
import struct
import time
from contextlib import ExitStack
from functools import partial

from app.sources.ports import (
    MOST_BYTES,
    SECOND_LOOK_S,
    Answering,
    BrokenOff,
    WrongAnswer,
    answering,
    connected,
    left,
    named,
    place,
    read,
    wrapped,
)

COMMAND = b"\x08\x02\x12\x08\x0a\x04weir\x20\x15"
"""A BaseCommand of type CONNECT with client version and protocol version (21)."""
PLAIN, SECURE = "serviceUrl to pulsar://", "serviceUrl to pulsar+ssl://"


def brokers(service_url: str) -> Answering:
    """The brokers of an address that answer; as `ports.answering`."""
    scheme, _, hosts = service_url.rpartition("://")
    return answering(hosts.split(","), partial(_knock, scheme == "pulsar+ssl"))


def _knock(tls: bool, server: str, until: float) -> None:
    host, port = place(server, "6651" if tls else "6650")
    try:
        return _ask(host, port, tls, until)
    except ssl.SSLError as error:
        if "ALERT" in (error.reason or ""):
            return None  # a certificate that is not sent here
        reason: Exception = error
    except (BrokenOff, ConnectionError) as error:
        reason = error
    if isinstance(reason, ConnectionRefusedError):
        raise reason
    try:
        # The other way: the handshake alone, or a frame without one.
        _ask(host, port, not tls, time.monotonic() + SECOND_LOOK_S, handshake=not tls)
    except (BrokenOff, OSError):
        raise BrokenOff from None
    how, key = ("without TLS", PLAIN) if tls else ("as TLS", SECURE)
    raise WrongAnswer(f"answers {how}: set {key}")


def _ask(host: str, port: int, tls: bool, until: float, handshake: bool = False) -> None:
    """One exchange, or only the handshake of TLS; WrongAnswer for what is no frame."""
    with ExitStack() as opened:
        sock = opened.enter_context(connected(host, port, left(until)))
        if tls:
            sock = opened.enter_context(wrapped(sock, host))
        if handshake:
            return
        sock.settimeout(left(until))
        sock.sendall(struct.pack(">ii", len(COMMAND) + 4, len(COMMAND)) + COMMAND)
        try:
            begun = read(sock, 9, until)
        except BrokenOff as error:
            begun = error.begun
            if not begun:
                raise
        total, command = struct.unpack(">ii", begun[:8].ljust(8, b"\0"))
        if not 2 <= command == total - 4 <= MOST_BYTES or begun[8:] != b"\x08":
            raise WrongAnswer(named(begun, tls, "Pulsar", SECURE))
