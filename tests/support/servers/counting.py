"""A relay in front of a Kafka broker, which counts the bytes of requests and answers by kind."""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

KINDS = {1: "FETCH", 2: "LIST_OFFSETS", 3: "METADATA", 9: "OFFSET_FETCH", 32: "DESCRIBE_CONFIGS"}


class Relay:
    """What has passed: bytes by kind of request, its number where it has no name here."""

    def __init__(self, listener: socket.socket) -> None:
        self.port = listener.getsockname()[1]
        self.broker = 0
        """The port to which it relays."""
        self.sent: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()

    @property
    def bytes(self) -> int:
        """Those of both directions."""
        return self.sent.total() + self.answered.total()

    def clear(self) -> None:
        """Count anew."""
        for each in (self.sent, self.answered, self.requests):
            each.clear()

    def _serve(self, taken: socket.socket) -> None:
        kinds: dict[int, str] = {}
        with suppress(OSError), taken, socket.create_connection(("127.0.0.1", self.broker)) as to:
            threading.Thread(target=self._answer, args=(to, taken, kinds), daemon=True).start()
            while (frame := _frame(taken)) is not None:
                key, _, number = struct.unpack_from(">hhi", frame, 4)
                kinds[number] = KINDS.get(key, str(key))
                self.sent[kinds[number]] += len(frame)
                self.requests[kinds[number]] += 1
                to.sendall(frame)

    def _answer(self, broker: socket.socket, client: socket.socket, kinds: dict[int, str]) -> None:
        with suppress(OSError):
            while (frame := _frame(broker)) is not None:
                (number,) = struct.unpack_from(">i", frame, 4)
                self.answered[kinds.pop(number)] += len(frame)
                client.sendall(frame)


@contextmanager
def relay() -> Iterator[Relay]:
    """A relay whose broker's port is set before the first connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found = Relay(listener)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    taken, _ = listener.accept()
                    threading.Thread(target=found._serve, args=(taken,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield found
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


def _frame(of: socket.socket) -> bytes | None:
    head = _read(of, 4)
    return None if head is None else head + (_read(of, struct.unpack(">i", head)[0]) or b"")


def _read(of: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        part = of.recv(min(size - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)
