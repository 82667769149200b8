"""Metrics of the job, the first three under the names of KIP-936's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb

from app.show.metrics.definition import BROKER, Definition, MetricsSection, defined
from app.show.metrics.entities import OTHER, Bounds, Entities, Key
from app.show.metrics.part import MetricsPart, Sample, labels, rows, scalar

_BREACHED = """
SELECT s.window_start_ms + s.window_ms AS at_ms, s.cluster, s.broker, s.user, s.rejected
FROM producer_id_stats AS s
WHERE s.rejected > 0 OR coalesce(s.throttle_time_avg_ms > 0, false)
ORDER BY at_ms, s.cluster, s.broker, s.user
"""
_NEAR = """
SELECT s.window_start_ms + s.window_ms AS at_ms, s.utilisation, s.cluster, s.broker, s.user
FROM producer_id_stats AS s WHERE s.utilisation >= $share
QUALIFY row_number() OVER (
  PARTITION BY s.cluster, s.broker, s.user ORDER BY s.window_start_ms DESC, s.ts_wall_ms DESC
) = 1
ORDER BY at_ms, s.cluster, s.broker, s.user
"""
_NEWEST = """
SELECT s.window_start_ms, s.cluster, s.broker, s.user, s.rate, s.tokens,
  coalesce(s.throttle_time_avg_ms, 0.0)
FROM producer_id_stats AS s
QUALIFY row_number() OVER (
  PARTITION BY s.cluster, s.broker, s.user ORDER BY s.window_start_ms DESC, s.ts_wall_ms DESC
) = 1
"""
_HEAP = """
SELECT l.cluster, l.broker, max(l.polled_ms), arg_max(l.broker_heap_bytes, l.polled_ms)
FROM producer_id_live AS l GROUP BY l.cluster, l.broker
"""
NAMES = (
    "kafka_server_producerids_rate",
    "kafka_server_producerids_tokens",
    "kafka_server_producerids_throttle_time",
)


class ProducerIdMetrics(MetricsPart):
    """Users and their producer ids."""

    reads = ("producer_id_stats", "producer_id_live")

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self._users = Entities(bounds, 1)
        self._newest: dict[Key, tuple[int, list[Any]]] = {}
        self._heap: dict[Key, tuple[int, int]] = {}

    def take(self, fresh: duckdb.DuckDBPyConnection) -> None:
        for cluster, broker, at_ms, heap_bytes in rows(fresh, _HEAP):
            key = labels((cluster, broker))
            self._heap[key] = max((at_ms, heap_bytes), self._heap.get(key, (at_ms, heap_bytes)))
        for at_ms, cluster, broker, user, rejected in rows(fresh, _BREACHED):
            key = labels((cluster, broker, user))
            self._users.breach(at_ms, key, [rejected or 0], (key[0], key[1], OTHER))
        for at_ms, utilisation, *names in fresh.execute(
            _NEAR, {"share": self.bounds.share}
        ).fetchall():
            self._users.near(at_ms, labels(names), utilisation)
        self._users.advance(
            scalar(fresh, "SELECT max(window_start_ms + window_ms) FROM producer_id_stats")
        )
        for at_ms, cluster, broker, user, *values in rows(fresh, _NEWEST):
            key = labels((cluster, broker, user))
            if key in self._users and at_ms >= self._newest.get(key, (at_ms,))[0]:
                self._newest[key] = (at_ms, values)
        self._newest = {key: value for key, value in self._newest.items() if key in self._users}

    def samples(self) -> Iterator[Sample]:
        for key, (_, heap_bytes) in self._heap.items():
            yield "weir_producer_id_heap_bytes", key, heap_bytes
        for part in (self._users.counters(), self._users.others()):
            for key, (rejected,) in part:
                yield "weir_producer_ids_rejected_total", key, rejected
        for key, (_, values) in self._newest.items():
            for name, value in zip(NAMES, values, strict=True):
                if value is not None:
                    yield name, key, value

    def families(self) -> dict[str, Entities]:
        return {"users": self._users}


_USER = (*BROKER, "user")
_DEFINITIONS = (
    *defined(
        _USER,
        "producer_id_stats",
        (
            "kafka_server_producerids_rate",
            "gauge",
            "Rate of new producer ids (ids per s; kafka.server:type=ProducerIds rate).",
        ),
        (
            "kafka_server_producerids_tokens",
            "gauge",
            "Remaining tokens; below 0 = throttling (kafka.server:type=ProducerIds tokens).",
        ),
        (
            "kafka_server_producerids_throttle_time",
            "gauge",
            "Mean throttle time (ms; kafka.server:type=ProducerIds throttle-time).",
        ),
        (
            "weir_producer_ids_rejected_total",
            "counter",
            "Batches rejected for the quota of producer ids.",
        ),
        bounded=True,
    ),
    Definition(
        "weir_producer_id_heap_bytes",
        "gauge",
        BROKER,
        "Estimated heap of the producer states that the broker holds as a leader.",
        "producer_id_live",
    ),
)
METRICS = (MetricsSection("Producer ids", _DEFINITIONS, (ProducerIdMetrics,), place=3),)
