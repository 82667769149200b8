"""Metrics of the job: throttled requests, entities near their limits, and clients without one."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb

from app.jobs.client_quotas.bases import SHARES, WINDOWS
from app.show.metrics.definition import BROKER, MetricsSection, defined
from app.show.metrics.entities import OTHER, Bounds, Entities, Key
from app.show.metrics.part import MetricsPart, Sample, labels, rows, scalar

_THROTTLED = f"""
SELECT s.window_start_ms + s.window_ms AS at_ms, s.cluster, s.broker, s.quota_type, s.user,
  s.client, s.throttled, coalesce(s.throttle_ms, 0) / 1000.0
FROM ({WINDOWS}) AS s WHERE s.throttled > 0
ORDER BY at_ms, s.cluster, s.broker, s.quota_type, s.user, s.client
"""
_NEAR = f"""
SELECT s.window_start_ms + s.window_ms AS at_ms, s.utilisation, s.cluster, s.broker, s.quota_type,
  s.user, s.client
FROM ({WINDOWS}) AS s WHERE s.utilisation >= $share
QUALIFY row_number() OVER (
  PARTITION BY s.cluster, s.broker, s.quota_type, s.user, s.client
  ORDER BY s.window_start_ms DESC, s.ts_wall_ms DESC
) = 1
ORDER BY at_ms, s.cluster, s.broker, s.quota_type, s.user, s.client
"""
_NEWEST = f"""
SELECT s.window_start_ms, s.cluster, s.broker, s.quota_type, s.user, s.client, s.utilisation
FROM ({WINDOWS}) AS s WHERE s.utilisation IS NOT NULL
QUALIFY row_number() OVER (
  PARTITION BY s.cluster, s.broker, s.quota_type, s.user, s.client
  ORDER BY s.window_start_ms DESC, s.ts_wall_ms DESC
) = 1
"""
_BY_DEFAULT = """
SELECT s.cluster, s.quota_type, s.bound_level, s.window_start_ms, s.user, s.client
FROM client_quota_stats AS s WHERE s.throttled > 0 AND contains(s.bound_level, 'default')
QUALIFY s.window_start_ms = max(s.window_start_ms) OVER (
  PARTITION BY s.cluster, s.quota_type, s.bound_level
)
"""
_NEWEST_OF_CLUSTER = """
SELECT s.cluster, max(s.window_start_ms) FROM client_quota_stats AS s GROUP BY s.cluster
"""
_LARGE = f"""
{SHARES}, newest AS (
  SELECT s.* FROM shares AS s
  QUALIFY s.window_start_ms = max(s.window_start_ms) OVER (PARTITION BY s.cluster, s.broker)
)
SELECT s.cluster, s.broker, s.window_start_ms,
  list(struct_pack(p := s.principal, c := s.client_id, share := s.share))
    FILTER (WHERE s.share >= 0.1 AND s.principal IS NOT NULL)
FROM newest AS s GROUP BY s.cluster, s.broker, s.window_start_ms
"""
_LIMITED = """
SELECT s.cluster, s.broker, s.window_start_ms, s.user, s.client
FROM client_quota_stats AS s WHERE s.bound IS NOT NULL
QUALIFY s.window_start_ms = max(s.window_start_ms) OVER (PARTITION BY s.cluster, s.broker)
"""


class ClientQuotaMetrics(MetricsPart):
    """Entities with a limit, by how near they are to it."""

    reads = ("client_quota_stats",)

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self._entities = Entities(bounds, 2)
        self._newest: dict[Key, tuple[int, float]] = {}
        self._by_default: dict[Key, tuple[int, set[Key]]] = {}
        self._reached: dict[str, int] = {}

    def take(self, fresh: duckdb.DuckDBPyConnection) -> None:
        for at_ms, *names, throttled, seconds in rows(fresh, _THROTTLED):
            key = labels(names)
            self._entities.breach(at_ms, key, [throttled, seconds], (*key[:3], OTHER, OTHER))
        for at_ms, utilisation, *names in rows(fresh, _NEAR, {"share": self.bounds.share}):
            self._entities.near(at_ms, labels(names), utilisation)
        self._entities.advance(
            scalar(fresh, "SELECT max(window_start_ms + window_ms) FROM client_quota_stats")
        )
        for at_ms, *names, utilisation in rows(fresh, _NEWEST):
            key = labels(names)
            if key in self._entities and at_ms >= self._newest.get(key, (at_ms,))[0]:
                self._newest[key] = (at_ms, utilisation)
        self._newest = {key: value for key, value in self._newest.items() if key in self._entities}
        for cluster, kind, level, at_ms, *who in rows(fresh, _BY_DEFAULT):
            _add(self._by_default, labels((cluster, kind, level)), at_ms, labels(who))
        for cluster, at_ms in rows(fresh, _NEWEST_OF_CLUSTER):
            self._reached[cluster] = max(at_ms, self._reached.get(cluster, at_ms))

    def samples(self) -> Iterator[Sample]:
        for part in (self._entities.counters(), self._entities.others()):
            for key, (throttled, seconds) in part:
                yield "weir_client_requests_throttled_total", key, throttled
                yield "weir_client_throttle_seconds_total", key, seconds
        for key, (_, utilisation) in self._newest.items():
            yield "weir_client_quota_utilisation_ratio", key, utilisation
        for key, (at_ms, clients) in self._by_default.items():
            # Clients of the newest window: none where nothing is throttled any more.
            found = len(clients) if at_ms >= self._reached[key[0]] else 0
            yield "weir_client_default_quota_throttled", key, found

    def families(self) -> dict[str, Entities]:
        return {"clients": self._entities}


class UnlimitedClients(MetricsPart):
    """The largest clients of the newest window of each broker, of those that no limit was found for."""

    reads = ("client_usage", "client_quota_stats")

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self._large: dict[Key, tuple[int, dict[Key, float]]] = {}
        self._limited: dict[Key, tuple[int, set[Key]]] = {}

    def take(self, fresh: duckdb.DuckDBPyConnection) -> None:
        for cluster, broker, at_ms, *who in rows(fresh, _LIMITED):
            _add(self._limited, (cluster, broker), at_ms, labels(who))
        for cluster, broker, at_ms, found in rows(fresh, _LARGE):
            if at_ms >= self._large.get((cluster, broker), (at_ms,))[0]:
                large = {labels((one["p"], one["c"])): one["share"] for one in found or ()}
                self._large[cluster, broker] = at_ms, large

    def samples(self) -> Iterator[Sample]:
        limited_clusters = {cluster for cluster, _ in self._limited}
        for place, (at_ms, large) in self._large.items():
            if place[0] not in limited_clusters:  # where nobody has a limit, nobody lacks one
                continue
            since_ms, limited = self._limited.get(place, (at_ms, set()))
            for (principal, client), share in large.items():
                user = principal.partition(":")[2] or principal
                known = ((user, client), (user, ""), ("", client))
                if since_ms != at_ms or limited.isdisjoint(known):
                    yield "weir_client_without_limit_ratio", (*place, principal, client), share


def _add(windows: dict[Key, tuple[int, set[Key]]], key: Key, at_ms: int, name: Key) -> None:
    """Add a name to those of the newest window of a key."""
    newest, names = windows.get(key, (at_ms, set()))
    if at_ms > newest:
        newest, names = at_ms, set()
    if at_ms == newest:
        names.add(name)
    windows[key] = newest, names


_ENTITY = (*BROKER, "quota_type", "user", "client")
METRICS = (
    MetricsSection(
        "Client quotas",
        (
            *defined(
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
                    "Requests throttled or refused by a client quota; measurements that showed a"
                    " throttle time in windows without requests.",
                ),
                (
                    "weir_client_throttle_seconds_total",
                    "counter",
                    "Throttle time of these requests.",
                ),
                bounded=True,
            ),
            *defined(
                ("cluster", "quota_type", "bound_level"),
                "client_quota_stats",
                (
                    "weir_client_default_quota_throttled",
                    "gauge",
                    "Clients that a default limit throttles in the newest window, on whatever brokers.",
                ),
            ),
            *defined(
                (*BROKER, "principal", "client_id"),
                "`client_usage`, `client_quota_stats`",
                (
                    "weir_client_without_limit_ratio",
                    "gauge",
                    "Share of the bytes or request handler time of all clients, in the newest window, of"
                    " a client to which no limit applies in it: from a tenth on, and from 1 MiB per s or"
                    " one thread on. Nothing in a cluster without limits.",
                ),
            ),
        ),
        (ClientQuotaMetrics, UnlimitedClients),
    ),
)
