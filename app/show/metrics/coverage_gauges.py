"""Metrics of what was read of each broker, of the jobs that are blind for it, and of polls."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb

from app.show.metrics.entities import Bounds
from app.show.metrics.part import Labels, MetricsPart, Sample, Sums, labels, rows

MS_PER_S = 1000.0
_COUNTS = """
SELECT cluster, broker, sum(received) FROM coverage_counts GROUP BY cluster, broker
"""
_BLIND = """
SELECT cluster, broker, job, max(blind_until_ms) FROM coverage_gaps
WHERE blind_until_ms IS NOT NULL GROUP BY cluster, broker, job
"""
_POLLS = """
SELECT cluster, source_feed, count(*) FILTER (WHERE dropped IS NULL),
  coalesce(max(ts_wall_ms) FILTER (WHERE dropped IS NOT NULL), 0)
FROM coverage_polls GROUP BY cluster, source_feed
"""


class CoverageMetrics(MetricsPart):
    """Brokers, and the jobs that are blind for them."""

    reads = ("coverage_counts", "coverage_gaps", "coverage_polls")

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self._records = Sums("weir_coverage_received_records_total")
        self._failed = Sums("weir_polls_unanswered_total")
        self._answered: dict[Labels, int] = {}
        self._blind: dict[Labels, int] = {}

    def take(self, fresh: duckdb.DuckDBPyConnection) -> None:
        self._records.add(rows(fresh, _COUNTS))
        for *names, until_ms in rows(fresh, _BLIND):
            key = labels(names)
            self._blind[key] = max(until_ms, self._blind.get(key, until_ms))

        for cluster, feed, failed, answered_ms in rows(fresh, _POLLS):
            key = labels((cluster, feed))
            self._failed.add([(cluster, feed, failed)])
            self._answered[key] = max(answered_ms, self._answered.get(key, 0))

    def samples(self) -> Iterator[Sample]:
        yield from self._records.samples()
        yield from self._failed.samples()
        for key, answered_ms in self._answered.items():
            yield "weir_poll_answered_timestamp_seconds", key, answered_ms / MS_PER_S
        for key, until_ms in self._blind.items():
            yield "weir_coverage_blind_until_timestamp_seconds", key, until_ms / MS_PER_S
