"""Batches of many producer ids on one connection: a client per id would take its own half second.

A broker takes the first batch of an id that it does not know, whoever gave the id out.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable, Sequence
from itertools import islice

from tests.support.waiting import PATIENCE_S

PRODUCE, VERSION = 0, 7
TRANSACTIONAL = 1 << 4
"""Attribute of a batch."""
AT_ONCE = 200
"""Requests that are sent before their answers are read."""


def produce(
    servers: str,
    topic: str,
    partition: int,
    ids: Iterable[int],
    sequence: int = 0,
    at_ms: int | None = None,
    transactional_id: str = "",
) -> None:
    """One batch of one message per id, with this sequence number; acknowledged by the leader. With a
    transactional id a transaction begins, which no coordinator knows."""
    host, _, port = servers.rpartition(":")
    waiting = iter(ids)
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as broker:
        answers = broker.makefile("rb")
        while some := list(islice(waiting, AT_ONCE)):
            broker.sendall(
                b"".join(
                    _request(topic, partition, each, sequence, at_ms, transactional_id)
                    for each in some
                )
            )
            for each in some:
                (size,) = struct.unpack(">i", answers.read(4))
                answer = answers.read(size)
                # correlation id, one topic, its name, one partition, its number, the error
                (error,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(topic) + 4 + 4)
                assert error == 0, f"producer id {each}: error {error}"


def _request(
    topic: str, partition: int, producer_id: int, sequence: int, at_ms: int | None, name: str
) -> bytes:
    batch = _batch(producer_id, sequence, at_ms, TRANSACTIONAL if name else 0)
    body = struct.pack(">hhihs", PRODUCE, VERSION, 0, 1, b"t")  # header, client id "t"
    body += struct.pack(">h", len(name) if name else -1) + name.encode()
    body += struct.pack(">hi", -1, 30_000)  # acks of all, time limit
    body += struct.pack(">ih", 1, len(topic)) + topic.encode()
    body += struct.pack(">iii", 1, partition, len(batch)) + batch
    return struct.pack(">i", len(body)) + body


def _batch(producer_id: int, sequence: int, at_ms: int | None, attributes: int) -> bytes:
    now_ms = int(time.time() * 1000) if at_ms is None else at_ms
    record = bytes([0, 0, 0, 1, 2, 0x78, 0])  # no key, value "x", no headers
    records = bytes([2 * len(record)]) + record
    after_crc = (
        struct.pack(">hiqqqhii", attributes, 0, now_ms, now_ms, producer_id, 0, sequence, 1)
        + records
    )
    after_length = struct.pack(">ibI", -1, 2, crc32c(after_crc)) + after_crc
    return struct.pack(">qi", 0, len(after_length)) + after_length


def _table() -> Sequence[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """The checksum of a batch (Castagnoli)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
