"""Metrics of the newest forecasts: limits by what is expected, and the soonest breaches."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb

from app.show.metrics.entities import Bounds
from app.show.metrics.part import Labels, MetricsPart, Sample, labels, rows, scalar

MS_PER_S = 1000.0
GAUGES = ("breach_timestamp_seconds", "predicted_ratio", "error_ratio")
_NEWEST = "SELECT max(known_ms) FROM forecasts"
_RESULTS = """
SELECT kind, CASE WHEN breached THEN 'breached' WHEN reason IS NOT NULL THEN 'unknown'
  WHEN breach_ms IS NOT NULL THEN 'expected' ELSE 'none' END AS result, count(*)
FROM forecasts WHERE known_ms = $known_ms GROUP BY ALL
"""
# The exporter has a series for each of the soonest only.
_SOONEST = """
SELECT kind, cluster, broker, entity, breach_ms, predicted, mean_error
FROM forecasts WHERE known_ms = $known_ms AND breach_ms IS NOT NULL AND NOT breached
ORDER BY breach_ms, kind, cluster NULLS FIRST, broker NULLS FIRST, entity LIMIT $top
"""


class Forecasts(MetricsPart):
    """The newest hour that was forecast."""

    reads = ("forecasts",)

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self._known_ms: int | None = None
        self._results: dict[Labels, int] = {}
        self._soonest: dict[Labels, tuple[float, ...]] = {}

    def take(self, fresh: duckdb.DuckDBPyConnection) -> None:
        known_ms = scalar(fresh, _NEWEST)
        if known_ms is None or known_ms < (self._known_ms or known_ms):
            return
        if known_ms != self._known_ms:
            self._known_ms, self._results, self._soonest = known_ms, {}, {}
        for *names, count in rows(fresh, _RESULTS, {"known_ms": known_ms}):
            key = labels(names)
            self._results[key] = self._results.get(key, 0) + count
        soonest = {"known_ms": known_ms, "top": self.bounds.top}
        for *names, breach_ms, predicted, error in rows(fresh, _SOONEST, soonest):
            self._soonest[labels(names)] = (breach_ms / MS_PER_S, predicted, error)
        first = sorted(self._soonest, key=lambda key: (self._soonest[key][0], key))[
            : self.bounds.top
        ]
        self._soonest = {key: self._soonest[key] for key in first}

    def samples(self) -> Iterator[Sample]:
        if self._known_ms is not None:
            yield "weir_forecast_known_timestamp_seconds", (), self._known_ms / MS_PER_S
        for key, count in self._results.items():
            yield "weir_forecast_limits", key, count
        for key, values in self._soonest.items():
            for name, value in zip(GAUGES, values, strict=True):
                yield f"weir_forecast_{name}", key, value
