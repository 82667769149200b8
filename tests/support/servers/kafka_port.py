"""A port on loopback that answers as Kafka's listeners do, or as something else does."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

Behave = Callable[[socket.socket], None]


class Port:
    """Where it listens, and the connections that it has taken."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.server = f"{address[0]}:{address[1]}"
        self.taken = 0


@contextmanager
def port(behave: Behave, tls: ssl.SSLContext | None = None) -> Iterator[Port]:
    """A port whose connections each have `behave` in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = Port(server.getsockname())

        def serve(taken: socket.socket) -> None:
            with suppress(OSError, struct.error), taken:
                behave(tls.wrap_socket(taken, server_side=True) if tls is not None else taken)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    taken, _ = server.accept()
                    found.taken += 1
                    threading.Thread(target=serve, args=(taken,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield found
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


def kafka(mechanisms: Sequence[str] | None = None) -> Behave:
    """A listener of Kafka; with `mechanisms` one that asks for a login, as SaslServerAuthenticator."""

    def behave(taken: socket.socket) -> None:
        while True:
            (size,) = struct.unpack(">i", _all(taken, 4))
            if size > 1 << 20:
                return  # as Kafka closes it
            request = _all(taken, size)
            key, version, number = struct.unpack(">hhi", request[:8])
            if key == 18:
                error = 0 if version < 4 else 35
                body = struct.pack(">hi", error, 2) + struct.pack(">6h", 17, 0, 1, 18, 0, 4)
            elif key == 17:
                at = 10 + struct.unpack(">h", request[8:10])[0]
                wanted = request[at + 2 :].decode()
                offered = mechanisms or ()
                error = 34 if mechanisms is None else 0 if wanted in offered else 33
                names = b"".join(struct.pack(">h", len(m)) + m.encode() for m in offered)
                body = struct.pack(">hi", error, len(offered)) + names
            else:
                return
            taken.sendall(struct.pack(">ii", len(body) + 4, number) + body)

    return behave


def says(data: bytes, then: float = 0.0) -> Behave:
    """Whatever is asked has these bytes for an answer; then the connection ends, after a time."""

    def behave(taken: socket.socket) -> None:
        taken.recv(1 << 16)
        taken.sendall(data)
        time.sleep(then)

    return behave


def silent(taken: socket.socket) -> None:
    """No answer."""
    while taken.recv(1 << 16):
        pass


def drip(taken: socket.socket) -> None:
    """An answer whose bytes take for ever."""
    taken.recv(1 << 16)
    for byte in struct.pack(">ii", 60_000, 18) + bytes(60_000):
        taken.sendall(bytes([byte]))
        time.sleep(0.05)


def reset(taken: socket.socket) -> None:
    """The connection breaks."""
    taken.recv(1)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _all(taken: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = taken.recv(size - len(found))
        if not part:
            raise ConnectionError
        found += part
    return found
