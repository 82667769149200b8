"""Metrics of the comparison with the brokers' own numbers."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb

from app.show.metrics.entities import Bounds
from app.show.metrics.part import Labels, MetricsPart, Sample, labels, rows

MS_PER_S = 1000.0
RESULTS = ("agree", "differ", "not_compared")
_NEWEST = """
SELECT cluster, broker, window_start_ms::DOUBLE + window_ms,
  count(*) FILTER (WHERE reason IS NULL AND abs(difference::DOUBLE) <= bound),
  count(*) FILTER (WHERE reason IS NULL AND abs(difference::DOUBLE) > bound),
  count(*) FILTER (WHERE reason IS NOT NULL)
FROM reconciliation WHERE window_start_ms + window_ms::DOUBLE IS NOT NULL
GROUP BY cluster, broker, window_start_ms, window_ms
ORDER BY window_start_ms
"""


class Reconciliation(MetricsPart):
    """The newest comparison of each broker."""

    reads = ("reconciliation",)

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self._newest: dict[Labels, tuple[float, tuple[int, ...]]] = {}

    def take(self, fresh: duckdb.DuckDBPyConnection) -> None:
        for cluster, broker, end_ms, *counts in rows(fresh, _NEWEST):
            key = labels((cluster, broker))
            newest, known = self._newest.get(key, (end_ms, (0,) * len(RESULTS)))
            if end_ms > newest:
                known = (0,) * len(RESULTS)
            if end_ms >= newest:
                self._newest[key] = (end_ms, tuple(map(sum, zip(known, counts, strict=True))))

    def samples(self) -> Iterator[Sample]:
        for key, (end_ms, counts) in self._newest.items():
            yield "weir_reconcile_compared_timestamp_seconds", key, end_ms / MS_PER_S
            for result, count in zip(RESULTS, counts, strict=True):
                yield "weir_reconcile_numbers", (*key, result), count
