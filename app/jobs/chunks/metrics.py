"""Metrics of the job: decisions about chunks, and the oldest incomplete message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb

from app.jobs.chunks.views import ENDS, GIVEN_UP
from app.show.metrics.definition import Definition, MetricsSection
from app.show.metrics.entities import Bounds
from app.show.metrics.part import Labels, MetricsPart, Sample, Sums, labels, rows

MS_PER_S = 1000.0
_GIVEN_UP = (
    f"SELECT e.cluster, e.outcome, count(*) FROM chunk_events AS e WHERE {ENDS} GROUP BY ALL"
)
_OLDEST = """
SELECT cluster, topic, subscription, consumer, window_start_ms, window_ms, oldest_age_ms
FROM chunk_state ORDER BY window_start_ms, row_no
"""


class ChunkMetrics(MetricsPart):
    """Chunked messages."""

    reads = ("chunk_events", "chunk_state")

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self._events = Sums("weir_chunk_events_total")
        self._given_up = Sums("weir_chunk_given_up_total")
        self._newest: dict[Labels, tuple[Any, ...]] = {}

    def take(self, fresh: duckdb.DuckDBPyConnection) -> None:
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
        for row in rows(fresh, _OLDEST):
            self._newest[labels(row[:4])] = tuple(row[4:])
        # Shards end a window at different commits: a row counts until it is two behind.
        front: dict[str, int] = {}
        for key, value in self._newest.items():
            front[key[0]] = max(front.get(key[0], 0), value[0])
        self._newest = {k: v for k, v in self._newest.items() if v[0] >= front[k[0]] - v[1]}

    def samples(self) -> Iterator[Sample]:
        yield from self._events.samples()
        yield from self._given_up.samples()
        oldest: dict[str, float] = {}
        for (cluster, *_), (_, _, age_ms) in self._newest.items():
            oldest[cluster] = max(oldest.get(cluster, 0.0), (age_ms or 0) / MS_PER_S)
        for cluster, age_s in oldest.items():
            yield "weir_chunk_oldest_age_seconds", (cluster,), age_s


_DEFINITIONS = (
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
        "weir_chunk_oldest_age_seconds",
        "gauge",
        ("cluster",),
        "Age of the oldest incomplete message.",
        "chunk_state",
    ),
)
METRICS = (MetricsSection("Chunked messages", _DEFINITIONS, (ChunkMetrics,), place=4),)
