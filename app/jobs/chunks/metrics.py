"""Metrics of the job: complete messages, decisions, and incomplete messages of consumers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb

from app.jobs.chunks.views import ENDS, GIVEN_UP
from app.show.metrics.definition import Definition, MetricsSection, defined
from app.show.metrics.entities import Bounds
from app.show.metrics.part import Labels, MetricsPart, Sample, Sums, labels, rows

MS_PER_S = 1000.0
_GIVEN_UP = (
    f"SELECT e.cluster, e.outcome, count(*) FROM chunk_events AS e WHERE {ENDS} GROUP BY ALL"
)


class ChunkMetrics(MetricsPart):
    """Chunked messages."""

    reads = (
        "chunk_messages",
        "chunk_events",
        "chunk_state",
        "chunk_topic_stats",
        "incomplete_messages",
    )

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self._whole = Sums("weir_chunk_messages_total")
        self._events = Sums("weir_chunk_events_total")
        self._given_up = Sums("weir_chunk_given_up_total")
        self._newest: dict[Labels, tuple[Any, ...]] = {}
        self._rates: dict[Labels, tuple[Any, ...]] = {}
        self._stalled: dict[Labels, tuple[Any, ...]] = {}

    def take(self, fresh: duckdb.DuckDBPyConnection) -> None:
        self._whole.add(
            rows(fresh, "SELECT cluster, integrity, count(*) FROM chunk_messages GROUP BY ALL")
        )
        self._events.add(
            rows(fresh, "SELECT cluster, outcome, count(*) FROM chunk_events GROUP BY ALL")
        )
        self._given_up.add(rows(fresh, _GIVEN_UP))
        # A counter that first shows with 1 has no increase: what is lost is there with 0 before.
        self._given_up.add(
            (cluster, outcome, 0)
            for (cluster,) in rows(fresh, "SELECT DISTINCT cluster FROM chunk_state")
            for outcome in GIVEN_UP
        )
        for found, count, sql in (
            (
                self._newest,
                4,
                "SELECT cluster, topic, subscription, consumer, window_start_ms, window_ms,"
                " contexts, leaked, buffered_bytes, oldest_age_ms"
                " FROM chunk_state ORDER BY window_start_ms, row_no",
            ),
            (
                self._rates,
                2,
                "SELECT cluster, topic, window_start_ms, window_ms, chunked_message_rate"
                " FROM chunk_topic_stats ORDER BY window_start_ms",
            ),
            (
                self._stalled,
                2,
                "SELECT cluster, topic, window_start_ms, window_ms, count(*)"
                " FROM incomplete_messages WHERE state = 'stalled'"
                " GROUP BY ALL ORDER BY window_start_ms",
            ),
        ):
            for row in rows(fresh, sql):
                found[labels(row[:count])] = tuple(row[count:])
        # Shards end a window at different commits: a row counts until it is two behind.
        front: dict[str, int] = {}
        parts = self._newest, self._rates, self._stalled
        for key, value in (item for part in parts for item in part.items()):
            front[key[0]] = max(front.get(key[0], 0), value[0])
        self._newest, self._rates, self._stalled = (
            {k: v for k, v in part.items() if v[0] >= front[k[0]] - v[1]} for part in parts
        )

    def samples(self) -> Iterator[Sample]:
        yield from self._whole.samples()
        yield from self._events.samples()
        yield from self._given_up.samples()
        totals: dict[str, list[float]] = {}
        for key, (_, _, contexts, leaked, size, age_ms) in self._newest.items():
            total = totals.setdefault(key[0], [0.0, 0.0, 0.0, 0.0])
            for index, value in enumerate((contexts, leaked, size)):
                total[index] += value or 0
            total[3] = max(total[3], (age_ms or 0) / MS_PER_S)
        for cluster in sorted({key[0] for key in (*self._rates, *self._stalled)}):
            for name, part in (
                ("weir_chunked_message_rate", self._rates),
                ("weir_chunk_stalled_messages", self._stalled),
            ):
                yield name, (cluster,), sum(v[2] for k, v in part.items() if k[0] == cluster)
        for cluster, (contexts, leaked, size, age_s) in totals.items():
            yield "weir_chunk_contexts", (cluster,), contexts
            yield "weir_chunk_leaked", (cluster,), leaked
            yield "weir_chunk_buffered_bytes", (cluster,), size
            yield "weir_chunk_oldest_age_seconds", (cluster,), age_s


_DEFINITIONS = (
    Definition(
        "weir_chunk_messages_total",
        "counter",
        ("cluster", "integrity"),
        "Complete chunked messages.",
        "chunk_messages",
    ),
    Definition(
        "weir_chunk_events_total",
        "counter",
        ("cluster", "outcome"),
        "Decisions about chunks except BUFFERED.",
        "chunk_events",
    ),
    Definition(
        "weir_chunk_given_up_total",
        "counter",
        ("cluster", "outcome"),
        "Decisions that give a large message up, those of the view given_up_messages, before it is known"
        " whether it arrives after all.",
        "chunk_events",
    ),
    Definition(
        "weir_chunked_message_rate",
        "gauge",
        ("cluster",),
        "Chunked messages that producers began per second, in the newest windows.",
        "chunk_topic_stats",
    ),
    Definition(
        "weir_chunk_stalled_messages",
        "gauge",
        ("cluster",),
        "Large messages that stalled subscriptions have not got, in the newest windows.",
        "incomplete_messages",
    ),
    *defined(
        ("cluster",),
        "chunk_state",
        (
            "weir_chunk_contexts",
            "gauge",
            "Incomplete messages of consumers, in the newest windows.",
        ),
        (
            "weir_chunk_leaked",
            "gauge",
            "Excess of the clients' counters over the incomplete messages.",
        ),
        (
            "weir_chunk_buffered_bytes",
            "gauge",
            "Bytes that consumers buffer for incomplete messages.",
        ),
        ("weir_chunk_oldest_age_seconds", "gauge", "Age of the oldest incomplete message."),
    ),
)
METRICS = (MetricsSection("Chunked messages", _DEFINITIONS, (ChunkMetrics,), place=4),)
