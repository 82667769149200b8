"""Metrics of what was read of each broker, and of the gaps in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb

from app.show.metrics.entities import Bounds
from app.show.metrics.part import Labels, MetricsPart, Sample, Sums, labels, rows

MS_PER_S = 1000.0
_COUNTS = """
SELECT cluster, broker, sum(received), sum(quarantined) FROM coverage_counts
GROUP BY cluster, broker
"""
_GAPS = """
SELECT DISTINCT cluster, broker, source_feed, seq, ts_wall_ms, dropped FROM coverage_gaps
WHERE ts_wall_ms IS NOT NULL
"""
_BLIND = """
SELECT cluster, broker, job, max(blind_until_ms) FROM coverage_gaps
WHERE blind_until_ms IS NOT NULL GROUP BY cluster, broker, job
"""


class CoverageMetrics(MetricsPart):
    """Brokers, and the jobs that are blind for them."""

    reads = ("coverage_counts", "coverage_gaps")

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self._records = Sums(
            "weir_coverage_received_records_total", "weir_coverage_quarantined_records_total"
        )
        self._gaps = Sums("weir_coverage_gaps_total", "weir_coverage_dropped_events_total")
        self._known: set[tuple[Any, ...]] = set()
        self._blind: dict[Labels, int] = {}

    def take(self, fresh: duckdb.DuckDBPyConnection) -> None:
        self._records.add(rows(fresh, _COUNTS))
        for cluster, broker, *which, dropped in rows(fresh, _GAPS):
            gap = (cluster, broker, *which)
            if gap not in self._known:  # a feed may send one again
                self._known.add(gap)
                self._gaps.add([(cluster, broker, 1, dropped)])
        for *names, until_ms in rows(fresh, _BLIND):
            key = labels(names)
            self._blind[key] = max(until_ms, self._blind.get(key, until_ms))

    def samples(self) -> Iterator[Sample]:
        yield from self._records.samples()
        yield from self._gaps.samples()
        for key, until_ms in self._blind.items():
            yield "weir_coverage_blind_until_timestamp_seconds", key, until_ms / MS_PER_S
