"""Metrics of every quota: how often it was breached, and how near its newest window is to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb

from app.read.databases import parsed
from app.show.metrics.entities import OTHER, Bounds, Entities, Key
from app.show.metrics.part import MetricsPart, Sample, labels, rows
from app.tables.definitions import TABLES
from app.tables.quota_usage import QUOTA_USAGE

MOST_WAITING = 10_000
"""Windows that wait for the first decision of their user, at most."""
VALUES = ("limit", "used", "used_ratio", "breached")
"""What is exported of the newest window of an entity, under `weir_quota_`."""

# The newest decision of a user shows whether it has a bound; earlier decisions are kept.
_BOUNDS = """
SELECT d.cluster, d.broker, d.user, d.bound_source, d.ts_wall_ms, d.row_no FROM (
  SELECT cluster, broker, "user", bound_source, ts_wall_ms, row_no FROM producer_id_decisions
  UNION ALL BY NAME
  FROM bounds_before
) AS d
QUALIFY row_number() OVER (
  PARTITION BY d.cluster, d.broker, d.user ORDER BY d.ts_wall_ms DESC, d.row_no DESC
) = 1
"""
# The tables of a batch are committed one after the other: a window of a user may be there before
# the user's first decision, and waits for it.
_COLUMNS = (
    'cluster, broker, "user", window_start_ms, window_ms, rate, utilisation, rejected,'
    " throttle_time_avg_ms"
)
_WINDOWS = f"""
CREATE TEMP TABLE windows_now AS
SELECT {_COLUMNS} FROM producer_id_stats UNION ALL SELECT {_COLUMNS} FROM windows_before
"""
_WAITING = f"""
SELECT {_COLUMNS} FROM windows_now ANTI JOIN bounds_now USING (cluster, broker, "user")
ORDER BY window_start_ms DESC LIMIT {MOST_WAITING}
"""
_USAGE = f"""
CREATE TEMP TABLE usage AS
WITH producer_id_decisions AS (FROM bounds_now), producer_id_stats AS (FROM windows_now),
  quota_usage AS ({QUOTA_USAGE.sql})
FROM quota_usage
"""
_BREACHED = """
SELECT window_start_ms + window_ms AS at_ms, kind, cluster, broker, entity
FROM usage WHERE breached ORDER BY at_ms, kind, cluster, broker, entity
"""
# One row for each entity that came near its quota, those nearest to it of each kind: no more can
# have series.
_NEAR = """
SELECT window_start_ms + window_ms AS at_ms, ratio, kind, cluster, broker, entity
FROM (
  FROM usage WHERE ratio >= $share QUALIFY row_number() OVER (
    PARTITION BY kind, cluster, broker, entity ORDER BY window_start_ms DESC
  ) = 1
)
QUALIFY row_number() OVER (
  PARTITION BY kind ORDER BY ratio DESC, cluster, broker, entity
) <= $top
ORDER BY at_ms, kind, cluster, broker, entity
"""
_REACHED = "SELECT kind, max(window_start_ms + window_ms) FROM usage GROUP BY kind"
_NEWEST = """
SELECT window_start_ms, window_ms, kind, cluster, broker, entity, "limit", used, ratio,
  CAST(breached AS INTEGER) FROM usage
QUALIFY row_number() OVER (
  PARTITION BY kind, cluster, broker, entity ORDER BY window_start_ms DESC
) = 1
"""
_LARGEST = """
SELECT kind, cluster, broker, window_start_ms, max(window_ms), max(ratio) FROM usage
GROUP BY kind, cluster, broker, window_start_ms
QUALIFY row_number() OVER (
  PARTITION BY kind, cluster, broker ORDER BY window_start_ms DESC
) = 1
"""


class QuotaMetrics(MetricsPart):
    """Quotas of every job; an entity is one quota of one topic, user, connection ..."""

    reads = QUOTA_USAGE.reads

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self._kinds: dict[str, Entities] = {}
        self._newest: dict[Key, tuple[int, int, list[Any]]] = {}
        self._reached: dict[str, int] = {}
        self._largest: dict[Key, tuple[int, float, int]] = {}
        self._bounds = TABLES["producer_id_decisions"].schema.empty_table()
        self._waiting = TABLES["producer_id_stats"].schema.empty_table()

    def take(self, fresh: duckdb.DuckDBPyConnection) -> None:
        fresh.register("bounds_before", self._bounds)
        fresh.register("windows_before", self._waiting)
        self._bounds = fresh.sql(_BOUNDS).to_arrow_table()
        fresh.register("bounds_now", self._bounds)
        fresh.execute(parsed(fresh, _WINDOWS))
        self._waiting = fresh.sql(_WAITING).to_arrow_table()
        fresh.execute(parsed(fresh, _USAGE))
        for at_ms, *names in rows(fresh, _BREACHED):
            key = labels(names)
            self._entities(key).breach(at_ms, key, [1.0], (*key[:3], OTHER))
        most = {"share": self.bounds.share, "top": self.bounds.top}
        for at_ms, ratio, *names in rows(fresh, _NEAR, most):
            key = labels(names)
            self._entities(key).near(at_ms, key, ratio)
        for name, now_ms in rows(fresh, _REACHED):
            self._reached[name] = max(self._reached.get(name, now_ms), now_ms)
            if name in self._kinds:
                self._kinds[name].advance(self._reached[name])
        for at_ms, window_ms, *columns in rows(fresh, _NEWEST):
            key, values = labels(columns[:4]), columns[4:]
            if self._shown(key) and at_ms >= self._newest.get(key, (at_ms,))[0]:
                self._newest[key] = (at_ms, window_ms, values)
        for kind, cluster, broker, at_ms, window_ms, ratio in rows(fresh, _LARGEST):
            key, found = labels((kind, cluster, broker)), (at_ms, ratio or 0.0, window_ms or 0)
            # Shards write the rows of a window one after the other.
            self._largest[key] = max(self._largest.get(key, found), found)
        self._newest = {key: value for key, value in self._newest.items() if self._shown(key)}

    def _entities(self, key: Key) -> Entities:
        return self._kinds.setdefault(key[0], Entities(self.bounds, 1))

    def _shown(self, key: Key) -> bool:
        return key[0] in self._kinds and key in self._kinds[key[0]]

    def samples(self) -> Iterator[Sample]:
        for entities in self._kinds.values():
            for part in (entities.counters(), entities.others()):
                for key, (breaches,) in part:
                    yield "weir_quota_breaches_total", key, breaches
        for key, (at_ms, largest, window_ms) in self._largest.items():
            if self._is_current(key, at_ms, window_ms):
                yield "weir_quota_used_ratio_max", key, largest
        checked = self._checked()
        for key, (at_ms, window_ms, values) in self._newest.items():
            if not self._is_current(key, at_ms, window_ms) or (
                not window_ms and at_ms < checked[_without_broker(key)]
            ):
                continue
            for name, value in zip(VALUES, values, strict=True):
                if value is not None:
                    yield f"weir_quota_{name}", key, value

    def _is_current(self, key: Key, at_ms: int, window_ms: int) -> bool:
        """Whether a window is among the newest of its kind. One window behind is a broker that is
        slower; a check, which has no length, is followed by another while its entity exists."""
        return not window_ms or at_ms + 2 * window_ms >= self._reached[key[0]]

    def _checked(self) -> dict[Key, int]:
        """The newest check of every entity: a topic that has moved counts on its new broker."""
        newest: dict[Key, int] = {}
        for key, (at_ms, window_ms, _) in self._newest.items():
            if not window_ms:
                entity = _without_broker(key)
                newest[entity] = max(at_ms, newest.get(entity, at_ms))
        return newest

    def families(self) -> dict[str, Entities]:
        return {f"quota {kind}": entities for kind, entities in self._kinds.items()}


def _without_broker(key: Key) -> Key:
    kind, cluster, _, entity = key
    return kind, cluster, entity
