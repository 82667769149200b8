"""A client of Kafka over a socket: PRODUCE and FETCH of any version, whose bytes it counts, and what
administrators change, for which the tools of Kafka would start a JVM each time."""

from __future__ import annotations

import socket
import struct
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.support.waiting import wait_for

PRODUCE, FETCH = 0, 1
INCREMENTAL_ALTER_CONFIGS, DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS = 44, 48, 49
BROKERS, LOGGERS = 4, 8
"""Types of resources with a configuration."""
Entity = dict[str, str | None]
"""A user, a client id or both, by `user` and `client-id`; None for the default."""


class Exchange(NamedTuple):
    """A request and its answer, without the four bytes of each's length."""

    sent: bytes
    received: bytes


class Topic(NamedTuple):
    """What is sent to or fetched from a topic, by its partitions: records, or the offset to begin
    at."""

    name: str
    topic_id: uuid.UUID
    partitions: dict[int, bytes | int]


class RawClient:
    """One connection."""

    def __init__(self, servers: str, client_id: bytes | None) -> None:
        host, port = servers.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), 20)
        self._client_id = client_id
        self._sent = 0

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def produce(
        self, version: int, topics: list[Topic], acks: int = 1, transactional_id: str | None = None
    ) -> Exchange:
        """Send records; without acks there is no answer."""
        w = _Writer(version >= 9)
        if version >= 3:
            w.string(transactional_id)
        w.pack(">hi", acks, 10_000).length(len(topics))
        for topic in topics:
            w.raw(topic.topic_id.bytes) if version >= 13 else w.string(topic.name)
            w.length(len(topic.partitions))
            for partition, records in topic.partitions.items():
                w.pack(">i", partition).records(records).tags()
            w.tags()
        return self._exchange(PRODUCE, version, w.tags(), acks != 0)

    def fetch(
        self,
        version: int,
        topics: list[Topic],
        replica: int = -1,
        leader_epoch: int = -1,
        fetched_epoch: int = -1,
    ) -> Exchange:
        """Fetch without a session; `leader_epoch` is the one that the client knows, `fetched_epoch`
        that of the record before the offset."""
        w = _Writer(version >= 12)
        if version < 15:
            w.pack(">i", replica)
        w.pack(">iii", 100, 1, 10_000_000)
        w.pack(">b", 1)
        if version >= 7:
            w.pack(">ii", 0, -1)
        w.length(len(topics))
        for topic in topics:
            w.raw(topic.topic_id.bytes) if version >= 13 else w.string(topic.name)
            w.length(len(topic.partitions))
            for partition, offset in topic.partitions.items():
                w.pack(">i", partition)
                if version >= 9:
                    w.pack(">i", leader_epoch)
                w.pack(">q", offset)
                if version >= 12:
                    w.pack(">i", fetched_epoch)
                if version >= 5:
                    w.pack(">q", -1)
                w.pack(">i", 5_000_000).tags()
            w.tags()
        if version >= 7:
            w.length(0)
        if version >= 11:
            w.string("")
        return self._exchange(FETCH, version, w.tags(), True)

    def limit(self, entity: Entity, limits: Mapping[str, float | None]) -> str:
        """Set limits of an entity, or remove them where they are None, and wait until the broker has
        them; else what it says against them."""
        w = _Writer(False).length(1).length(len(entity))
        for kind, name in entity.items():
            w.string(kind).string(name)
        w.length(len(limits))
        for key, value in limits.items():
            w.string(key).pack(">db", value or 0.0, value is None)
        refused = self._changed(ALTER_CLIENT_QUOTAS, w)

        def known() -> bool:
            now = self._limits(entity)
            # NaN is no number that equals itself
            return all(str(now.get(k)) == str(v and float(v)) for k, v in limits.items())

        if not refused:
            wait_for(known)
        return refused

    def configure(self, kind: int, name: str, settings: Mapping[str, str | None]) -> str:
        """Change settings of a resource, or remove them where they are None; what the broker says
        against it."""
        w = _Writer(False).length(1).pack(">b", kind).string(name).length(len(settings))
        for key, value in settings.items():
            w.string(key).pack(">b", value is None).string(value)
        return self._changed(INCREMENTAL_ALTER_CONFIGS, w)

    def _changed(self, api: int, body: _Writer) -> str:
        """Have one thing changed; what the broker says against it."""
        answer = _Reader(self._exchange(api, 0, body.pack(">b", 0), True).received)
        _, _, _, error, text = *answer.unpack(">iiih"), answer.string()
        return (text or f"error {error}") if error else ""

    def _limits(self, entity: Entity) -> dict[str, float]:
        """The limits that the broker has for an entity."""
        w = _Writer(False).length(len(entity))
        for kind, name in entity.items():
            w.string(kind).pack(">b", name is None).string(name)
        answer = _Reader(
            self._exchange(DESCRIBE_CLIENT_QUOTAS, 0, w.pack(">b", True), True).received
        )
        _, _, error, text = *answer.unpack(">iih"), answer.string()
        assert not error, text
        found = {}
        for _ in range(*answer.unpack(">i")):
            for _ in range(*answer.unpack(">i")):
                answer.string(), answer.string()
            for _ in range(*answer.unpack(">i")):
                key = answer.string()
                (found[str(key)],) = answer.unpack(">d")
        return found

    def _exchange(self, api: int, version: int, body: _Writer, answered: bool) -> Exchange:
        self._sent += 1
        header = _Writer(False).pack(">hhi", api, version, self._sent)
        name = self._client_id
        header.pack(">h", -1 if name is None else len(name)).raw(name or b"")
        request = header.bytes + (b"\0" if body.flexible else b"") + body.bytes
        self._socket.sendall(struct.pack(">i", len(request)) + request)
        return Exchange(request, self._read() if answered else b"")

    def _read(self) -> bytes:
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def _exactly(self, length: int) -> bytes:
        found = b""
        while len(found) < length:
            piece = self._socket.recv(length - len(found))
            if not piece:
                raise ConnectionError("the broker has closed the connection")
            found += piece
        return found


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def unpack(self, form: str) -> tuple[Any, ...]:
        self._at += struct.calcsize(form)
        return struct.unpack_from(form, self._data, self._at - struct.calcsize(form))

    def string(self) -> str | None:
        (length,) = self.unpack(">h")
        self._at += max(length, 0)
        return None if length < 0 else self._data[self._at - length : self._at].decode()


class _Writer:
    def __init__(self, flexible: bool) -> None:
        self.flexible, self.bytes = flexible, b""

    def pack(self, form: str, *values: object) -> _Writer:
        return self.raw(struct.pack(form, *values))

    def raw(self, data: bytes) -> _Writer:
        self.bytes += data
        return self

    def length(self, count: int) -> _Writer:
        """Of an array."""
        return self._varint(count + 1) if self.flexible else self.pack(">i", count)

    def string(self, text: str | None) -> _Writer:
        data = None if text is None else text.encode()
        if self.flexible:
            return self._varint(0 if data is None else len(data) + 1).raw(data or b"")
        return self.pack(">h", -1 if data is None else len(data)).raw(data or b"")

    def records(self, data: bytes | int) -> _Writer:
        assert not isinstance(data, int)
        sized = self._varint(len(data) + 1) if self.flexible else self.pack(">i", len(data))
        return sized.raw(data)

    def tags(self) -> _Writer:
        return self.raw(b"\0") if self.flexible else self

    def _varint(self, number: int) -> _Writer:
        while number > 0x7F:
            self.raw(bytes([number & 0x7F | 0x80]))
            number >>= 7
        return self.raw(bytes([number]))
