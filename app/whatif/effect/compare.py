"""Compares the tables of two replays: each measure before and after.

Each side is summed by topic and user in its own warehouse. The sums are joined in one connection,
which spills to disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import duckdb

from app.read.memory import default_bytes
from app.read.relations import ANY_ORDER, Warehouse, connect
from app.tables.client_entity import client_entity

Row = dict[str, Any]


@dataclass(frozen=True)
class RowSum:
    """A sum over rows; every measure is smaller the less a policy limits."""

    name: str
    meaning: str
    scale: int = 1
    """Divisor of the sum for display."""

    def shown(self, value: int) -> int | float:
        """The sum for display: a count, or seconds."""
        return value if self.scale == 1 else value / self.scale


NS, MS = 1_000_000_000, 1000
MEASURES = (
    RowSum("throttles", "marks of connections by publish limits"),
    RowSum("pauses", "pauses of connections, one for each topic on them"),
    RowSum("paused_s", "time that topics were paused", NS),
    RowSum("paused_own_s", "of this, for the topic's own limit", NS),
    RowSum("paused_shared_s", "of this, for limits that topics share", NS),
    RowSum("paused_others_s", "of this, for limits of other topics", NS),
    RowSum("victims", "topics that were paused for limits of other topics"),
    RowSum("throttled_ids", "new producer ids that were throttled"),
    RowSum("rejected_ids", "new producer ids that were rejected"),
    RowSum("id_throttle_s", "throttle time of these ids", MS),
    RowSum("exceeded_checks", "checks that found a backlog over a quota"),
    RowSum("evictions", "evictions from backlogs"),
    RowSum("evicted_entries", "entries that these skipped: lost to their subscription"),
    RowSum("disconnected_producers", "producers disconnected for a backlog quota"),
    RowSum("refused_producers", "producers refused for a backlog quota"),
    RowSum("throttled_requests", "requests throttled by client quotas"),
    RowSum("refused_requests", "requests refused by client quotas"),
    RowSum("client_throttle_s", "throttle time of these requests", MS),
    RowSum("rates_over_quota", "measured rates above a client quota"),
)
BY_NAME = {measure.name: measure for measure in MEASURES}
NAMES = tuple(BY_NAME)
BINS = 60
"""Bars of a chart over time."""

_DECISIONS = f"""
  SELECT 'topic' AS kind, cluster, topic AS name, ts_wall_ms AS at_ms, 1 AS throttles
  FROM throttle_events WHERE action = 'mark'
  UNION ALL BY NAME
  SELECT 'topic' AS kind, cluster, topic AS name, window_start_ms AS at_ms,
    limited_times AS pauses, CAST(culprit_ns AS HUGEINT) AS paused_own_s,
    CAST(shared_ns AS HUGEINT) AS paused_shared_s,
    CAST(collateral_ns AS HUGEINT) AS paused_others_s,
    CAST(culprit_ns AS HUGEINT) + shared_ns + collateral_ns AS paused_s,
    is_victim
  FROM topic_pauses
  UNION ALL BY NAME
  SELECT 'user' AS kind, cluster, "user" AS name, ts_wall_ms AS at_ms,
    CAST(verdict = 'throttled' AS INTEGER) AS throttled_ids,
    CAST(verdict = 'rejected' AS INTEGER) AS rejected_ids, throttle_ms AS id_throttle_s
  FROM producer_id_decisions WHERE verdict <> 'counted'
  UNION ALL BY NAME
  SELECT 'topic' AS kind, cluster, topic AS name, pass_ms AS at_ms,
    CAST(exceeded_size OR exceeded_time AS INTEGER) AS exceeded_checks,
    producers_disconnected AS disconnected_producers
  FROM backlog_checks WHERE exceeded_size OR exceeded_time OR producers_disconnected > 0
  UNION ALL BY NAME
  SELECT 'topic' AS kind, cluster, topic AS name, ts_wall_ms AS at_ms,
    CAST(NOT phantom AS INTEGER) AS evictions, entries_skipped AS evicted_entries
  FROM backlog_evictions
  UNION ALL BY NAME
  SELECT 'topic' AS kind, cluster, topic AS name, ts_wall_ms AS at_ms, 1 AS refused_producers
  FROM producer_refusals
  UNION ALL BY NAME
  SELECT 'client' AS kind, d.cluster, {client_entity("d")} AS name, d.ts_wall_ms AS at_ms,
    CAST(d.verdict = 'throttled' AS INTEGER) AS throttled_requests,
    CAST(d.verdict = 'refused' AS INTEGER) AS refused_requests, d.throttle_ms AS client_throttle_s
  FROM client_quota_decisions AS d
  UNION ALL BY NAME
  SELECT 'client' AS kind, s.cluster, {client_entity("s")} AS name, s.window_start_ms AS at_ms,
    s.throttled AS rates_over_quota
  FROM client_quota_stats AS s WHERE s.basis = 'metrics'
"""
_SUMMED = ", ".join(
    f"coalesce(sum({name}), 0)::HUGEINT AS {name}" for name in NAMES if name != "victims"
)
_ENTITIES = f"""
SELECT kind, cluster, name,
  CASE kind WHEN 'topic' THEN weir_topic_tenant(name) END AS tenant, {_SUMMED},
  coalesce(bool_or(is_victim), false)::HUGEINT AS victims
FROM ({_DECISIONS}) GROUP BY kind, cluster, name
"""
_CACHES = """
SELECT cluster, policy, sum(hits)::HUGEINT AS hits, sum(misses)::HUGEINT AS misses
FROM cache_stats WHERE topic IS NULL GROUP BY cluster, policy
"""
OVER_TIME = ("paused_s", "rejected_ids", "evicted_entries", "client_throttle_s")
_TIMES = f"""
SELECT at_ms, {", ".join(f"coalesce(sum({n}), 0)::HUGEINT AS {n}" for n in OVER_TIME)}
FROM ({_DECISIONS}) WHERE at_ms IS NOT NULL GROUP BY at_ms
"""
_SIDES = {"entities": _ENTITIES, "times": _TIMES, "caches": _CACHES}


@dataclass(frozen=True)
class Effects:
    """The differences between two replays; a measure of a row is `{name}_before`, `{name}_after`."""

    total: Row
    tenants: list[Row]
    topics: list[Row]
    users: list[Row]
    clients: list[Row]
    """Entities of client quotas, by user, client id or both. Those with the greatest change first."""
    changed: dict[str, int]
    """Number of tenants, topics, users and clients with a difference; the lists may have fewer."""
    times: list[Row]
    """Sums of `OVER_TIME` from `at_ms` up to, but not including, `until_ms`."""
    caches: list[Row]
    """Hits and misses by cluster and eviction policy."""

    @property
    def measures(self) -> tuple[RowSum, ...]:
        """The measures that are not 0 on both sides."""
        return tuple(m for m in MEASURES if any(pair(self.total, m.name)))

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not any(self.changed.values()) and all(
            row[f"{name}_before"] == row[f"{name}_after"]
            for row in self.caches
            for name in ("hits", "misses")
        )


def pair(row: Row, name: str) -> tuple[int, int]:
    """A measure of a row before and after."""
    return row[f"{name}_before"], row[f"{name}_after"]


def shown(row: Row, measure: RowSum) -> tuple[int | float, int | float, int | float]:
    """A measure of a row for display: before, after, and the change."""
    before, after = pair(row, measure.name)
    return measure.shown(before), measure.shown(after), measure.shown(after - before)


def compared(before: Warehouse, after: Warehouse, rows: int, window_ms: int) -> Effects:
    """The effects of other policies, from the tables of a replay under each set, with windows of
    the given length. Each list has the `rows` elements with the greatest changes.
    """
    config = {"memory_limit": f"{default_bytes() // 2}B", **ANY_ORDER}
    every = " ".join(_SIDES.values())
    with (
        connect(after, every, config=config, calendar=True) as theirs,
        connect(before, every, config=config, calendar=True) as ours,
    ):
        for name, sql in _SIDES.items():
            ours.execute(f"CREATE TEMP TABLE {name} AS SELECT 'before' AS side, * FROM ({sql})")
            ours.register(f"_{name}", theirs.sql(sql).to_arrow_reader())
            columns = ours.execute(f"DESCRIBE {name}").fetchall()
            # 128-bit integers come as decimals
            cast = ", ".join(f'"{c}"::{kind} AS "{c}"' for c, kind, *_ in columns[1:])
            ours.execute(f"INSERT INTO {name} SELECT 'after', {cast} FROM _{name}")
            ours.unregister(f"_{name}")
        ours.execute(
            f"CREATE TEMP TABLE changes AS SELECT kind, cluster, name, tenant, {_paired(NAMES)}"
            " FROM entities GROUP BY ALL"
        )
        return _effects(ours, rows, window_ms)


def _paired(names: tuple[str, ...]) -> str:
    """The sums of both sides, joined."""
    return ", ".join(
        f"coalesce(sum({name}) FILTER (WHERE side = '{side}'), 0)::HUGEINT AS {name}_{side}"
        for name in names
        for side in ("before", "after")
    )


def _effects(connection: duckdb.DuckDBPyConnection, rows: int, window_ms: int) -> Effects:
    sums = ", ".join(
        f"coalesce(sum({name}_{side}), 0)::HUGEINT AS {name}_{side}"
        for name in NAMES
        for side in ("before", "after")
    )
    differs = " OR ".join(f"{name}_before <> {name}_after" for name in NAMES)
    order = ", ".join(
        f"abs({name}_after - {name}_before) DESC"
        for name in ("paused_s", "evicted_entries", "rejected_ids", *NAMES)
    )
    connection.execute(
        f"CREATE TEMP TABLE tenants AS SELECT cluster, tenant, {sums} FROM changes"
        " WHERE kind = 'topic' GROUP BY cluster, tenant"
    )
    wanted = {
        "tenants": ("tenants", "cluster, tenant", "true"),
        "topics": ("changes", "cluster, name", "kind = 'topic'"),
        "users": ("changes", "cluster, name", "kind = 'user'"),
        "clients": ("changes", "cluster, name", "kind = 'client'"),
    }
    lists, changed = {}, {}
    for name, (table, key, chosen) in wanted.items():
        where = f"FROM {table} WHERE {chosen} AND ({differs})"
        changed[name] = _rows(connection, f"SELECT count(*) AS n {where}")[0]["n"]
        lists[name] = _rows(connection, f"SELECT * {where} ORDER BY {order}, {key} LIMIT {rows}")
    return Effects(
        _rows(connection, f"SELECT {sums} FROM changes")[0],
        lists["tenants"],
        lists["topics"],
        lists["users"],
        lists["clients"],
        changed,
        _times(connection, window_ms),
        _rows(
            connection,
            f"SELECT cluster, policy, {_paired(('hits', 'misses'))} FROM caches"
            " GROUP BY ALL ORDER BY cluster, policy",
        ),
    )


def _times(connection: duckdb.DuckDBPyConnection, window_ms: int) -> list[Row]:
    """The sums over time, in at most about `BINS` parts of whole windows."""
    least, most = connection.execute("SELECT min(at_ms), max(at_ms) FROM times").fetchone() or (
        None,
        None,
    )
    if least is None:
        return []
    width = ((most - least) // BINS // window_ms + 1) * window_ms
    return _rows(
        connection,
        f"""
        SELECT part * {width} AS at_ms, (part + 1) * {width} AS until_ms, * EXCLUDE (part)
        FROM (SELECT at_ms::HUGEINT // {width} AS part, {_paired(OVER_TIME)}
              FROM times GROUP BY part)
        ORDER BY at_ms
    """,
    )


def _rows(connection: duckdb.DuckDBPyConnection, sql: str) -> list[Row]:
    found = connection.execute(sql)
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
