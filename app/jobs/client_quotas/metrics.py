"""Metrics of the job: throttled requests, and entities near their limits."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb

from app.show.metrics.definition import BROKER, MetricsSection, defined
from app.show.metrics.entities import OTHER, Bounds, Entities, Key
from app.show.metrics.part import MetricsPart, Sample, labels, rows, scalar

_THROTTLED = """
SELECT s.window_start_ms + s.window_ms AS at_ms, s.cluster, s.broker, s.quota_type, s.user,
  s.client, s.throttled, coalesce(s.throttle_ms, 0) / 1000.0
FROM client_quota_stats AS s WHERE s.throttled > 0
ORDER BY at_ms, s.cluster, s.broker, s.quota_type, s.user, s.client
"""
_NEAR = """
SELECT s.window_start_ms + s.window_ms AS at_ms, s.utilisation, s.cluster, s.broker, s.quota_type,
  s.user, s.client
FROM client_quota_stats AS s WHERE s.utilisation >= $share
QUALIFY row_number() OVER (
  PARTITION BY s.cluster, s.broker, s.quota_type, s.user, s.client
  ORDER BY s.window_start_ms DESC, s.ts_wall_ms DESC
) = 1
ORDER BY at_ms, s.cluster, s.broker, s.quota_type, s.user, s.client
"""
_NEWEST = """
SELECT s.window_start_ms, s.cluster, s.broker, s.quota_type, s.user, s.client, s.utilisation
FROM client_quota_stats AS s WHERE s.utilisation IS NOT NULL
QUALIFY row_number() OVER (
  PARTITION BY s.cluster, s.broker, s.quota_type, s.user, s.client
  ORDER BY s.window_start_ms DESC, s.ts_wall_ms DESC
) = 1
"""


class ClientQuotaMetrics(MetricsPart):
    """Entities with a limit, by how near they are to it."""

    reads = ("client_quota_stats",)

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self._entities = Entities(bounds, 2)
        self._newest: dict[Key, tuple[int, float]] = {}

    def take(self, fresh: duckdb.DuckDBPyConnection) -> None:
        for at_ms, *names, throttled, seconds in rows(fresh, _THROTTLED):
            key = labels(names)
            self._entities.breach(at_ms, key, [throttled, seconds], (*key[:3], OTHER, OTHER))
        for at_ms, utilisation, *names in fresh.execute(
            _NEAR, {"share": self.bounds.share}
        ).fetchall():
            self._entities.near(at_ms, labels(names), utilisation)
        self._entities.advance(
            scalar(fresh, "SELECT max(window_start_ms + window_ms) FROM client_quota_stats")
        )
        for at_ms, *names, utilisation in rows(fresh, _NEWEST):
            key = labels(names)
            if key in self._entities and at_ms >= self._newest.get(key, (at_ms,))[0]:
                self._newest[key] = (at_ms, utilisation)
        self._newest = {key: value for key, value in self._newest.items() if key in self._entities}

    def samples(self) -> Iterator[Sample]:
        for part in (self._entities.counters(), self._entities.others()):
            for key, (throttled, seconds) in part:
                yield "weir_client_requests_throttled_total", key, throttled
                yield "weir_client_throttle_seconds_total", key, seconds
        for key, (_, utilisation) in self._newest.items():
            yield "weir_client_quota_utilisation_ratio", key, utilisation

    def families(self) -> dict[str, Entities]:
        return {"clients": self._entities}


_ENTITY = (*BROKER, "quota_type", "user", "client")
METRICS = (
    MetricsSection(
        "Client quotas",
        defined(
            _ENTITY,
            "client_quota_stats",
            (
                "weir_client_quota_utilisation_ratio",
                "gauge",
                "Largest rate of the newest window / limit.",
            ),
            (
                "weir_client_requests_throttled_total",
                "counter",
                "Requests throttled or refused by a client quota; of metrics, measurements.",
            ),
            (
                "weir_client_throttle_seconds_total",
                "counter",
                "Throttle time of these requests.",
            ),
            bounded=True,
        ),
        (ClientQuotaMetrics,),
    ),
)
