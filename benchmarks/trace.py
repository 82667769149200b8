"""The synthetic trace: publishes and what follows them, topics by Zipf, about 400 bytes of JSON.

Of ten records four are publishes, four the `entry_added` of the publish before, one a dispatch
and one an acknowledgement. Each comes as JSON text and as typed columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.events import SCHEMA

Array = np.ndarray
START_NS = 10_368_000_000_000_001
"""120 days of uptime and a nanosecond: monotonic times are above 2**53."""
START_MS = 1_767_621_600_000
CLUSTER = "bench"
BROKERS = 12
CONNECTIONS = 50
KINDS = pa.array(["publish", "entry_added", "dispatch", "ack"])
KIND_BY_TENTH = np.array([0, 1, 0, 1, 0, 1, 0, 1, 2, 3])
COLUMNS = (
    "event_type",
    "source_feed",
    "cluster",
    "broker",
    "seq",
    "ts_mono_ns",
    "ts_wall_ms",
    "cnx_id",
    "topic",
    "producer_id",
    "producer_name",
    "sequence_id",
    "ledger_id",
    "entry_id",
    "entry_bytes",
    "num_messages",
    "publish_time_ms",
)
"""The seventeen columns that every record carries; some carry `subscription` and `consumer`."""
POLICY: dict[str, Any] = {
    "scope": "broker",
    "name": "*",
    "limits": {"maxPublishRatePerTopicInMessages": 1500},
}


@dataclass(frozen=True)
class Traffic:
    """What the records are about; equal traffic gives equal records."""

    topics: int = 10_000
    skew: float = 1.1
    """Zipf exponent; 0 = every topic alike."""
    rate: int = 50_000
    """Records of one second of event time."""
    late: float = 0.03
    """Share of records that arrive after newer ones, by up to 300 ms."""
    seed: int = 3
    hot: float = 0.0
    """Share of records that the topics of one broker take from all others."""

    def parts(self, count: int, size: int) -> Iterator[pa.Table]:
        """`count` tables of `size` records in order of arrival: SCHEMA's columns and `value`."""
        weight = np.arange(1, self.topics + 1) ** -self.skew
        share = np.cumsum(weight / weight.sum())
        names = _Names.of(self.topics)
        for part in range(count):
            rng = np.random.default_rng([self.seed, part])
            i = np.arange(part * size, (part + 1) * size)
            kind = KIND_BY_TENTH[i % 10]
            topic = np.searchsorted(share, rng.random(size)).clip(0, self.topics - 1)
            entry_bytes = rng.integers(100, 3000, size)
            if self.hot:
                taken = rng.random(size) < self.hot
                topic = np.where(taken, topic // BROKERS * BROKERS, topic)
            after = np.flatnonzero(kind == 1)
            topic[after], entry_bytes[after] = topic[after - 1], entry_bytes[after - 1]
            at_ns = i * (1_000_000_000 // self.rate)
            delay = np.where(rng.random(size) < self.late, rng.integers(0, 300_000_000, size), 0)
            columns = _columns(names, i, kind, topic, entry_bytes, at_ns)
            table = pa.table({**columns, "value": _json(columns)})
            yield table.take(pa.array(np.argsort(at_ns + delay, kind="stable")))


@dataclass(frozen=True)
class _Names:
    """Names by topic, made once."""

    topic: pa.Array
    broker: pa.Array
    cnx: pa.Array
    producer: pa.Array

    @classmethod
    def of(cls, topics: int) -> _Names:
        t = np.arange(topics)
        broker, cnx = t % BROKERS, t // BROKERS % CONNECTIONS
        return cls(
            _join("persistent://tenant-", t % 17, "/ns-", t % 5, "/topic-", t),
            _join("broker-", broker, ".pulsar.svc.cluster.local:6650"),
            _join("10.0.", broker, ".", cnx, ":", 40_000 + cnx),
            _join("producer-", t),
        )


def _columns(
    names: _Names, i: Array, kind: Array, topic: Array, entry_bytes: Array, at_ns: Array
) -> dict[str, pa.Array]:
    n, at = len(i), pa.array(topic)
    mono, wall = START_NS + at_ns, START_MS + at_ns // 1_000_000
    read = pa.array(kind < 2)
    made: dict[str, pa.Array] = {
        "event_type": KINDS.take(pa.array(kind)),
        "source_feed": pa.repeat(pa.scalar("pulsar_interceptor"), n),
        "cluster": pa.repeat(pa.scalar(CLUSTER), n),
        "broker": names.broker.take(at),
        "seq": pa.array(i),
        "ts_mono_ns": pa.array(mono),
        "ts_wall_ms": pa.array(wall),
        "cnx_id": names.cnx.take(at),
        "topic": names.topic.take(at),
        "producer_id": pa.array(topic),
        "producer_name": names.producer.take(at),
        "sequence_id": pa.array(i),
        "ledger_id": pa.array(topic + 1000),
        "entry_id": pa.array(i),
        "entry_bytes": pa.array(entry_bytes),
        "num_messages": pa.array(np.ones(n, np.int32)),
        "publish_time_ms": pa.array(wall - 3),
        "subscription": pc.if_else(read, None, pa.scalar("sub-1")),
        "consumer": pc.if_else(read, None, pa.scalar("consumer-1")),
    }
    return made


def _json(columns: dict[str, pa.Array]) -> pa.BinaryArray:
    parts: list[Any] = []
    for name in COLUMNS:
        text = SCHEMA.field(name).type == pa.string()
        quote = '"' if text else ""
        parts.append(("{" if name == COLUMNS[0] else ",") + f'"{name}":{quote}')
        parts += [columns[name] if text else columns[name].cast(pa.string()), quote]
    tail = pc.if_else(
        pc.is_null(columns["subscription"]),
        "}",
        ',"subscription":"sub-1","consumer":"consumer-1"}',
    )
    return pc.binary_join_element_wise(*parts, tail, "").cast(pa.binary())


def _join(*parts: Any) -> pa.Array:
    texts = [p if isinstance(p, str) else pa.array(p).cast(pa.string()) for p in parts]
    return pc.binary_join_element_wise(*texts, "")
