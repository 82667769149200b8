"""Pauses of connections, each with its first and last row, and the statistics of their time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.jobs.rate_limits.pauses import INTERVALS, numbered
from app.read.question import LEAST, MOST
from app.show.explain.ask import IN_WINDOW, Ask, of_topic
from app.show.explain.nearby_rows import SnapshotReader, columns, in_order, row_of, summary_of, used
from app.show.explain.sentence import Quoted, Row

THROTTLED = (
    f"({of_topic()} OR {of_topic('t.trigger_topic')}"
    f" OR len(list_filter(t.collateral_topics, lambda other: {of_topic('other')})) > 0)"
)
"""Rows of throttle_events that concern the topic, by publish, producer or connection."""
COLUMNS = ("ts_wall_ms", "ts_mono_ns", "row_no")
ORDER = ", ".join(f"t.{column}" for column in COLUMNS)

# Connections with a row in the requested time, and those that were paused when it began: with the
# range of times in which their rows matter, from the last time before it to the first time after it
# at which they were open. Null: there is none.
_CONNECTIONS = f"""
WITH changes AS (
  SELECT t.cluster, t.broker, t.cnx_id,
    max(t.ts_wall_ms) FILTER (WHERE t.reads_paused AND t.ts_wall_ms < $lo) AS paused_ms,
    max(t.ts_wall_ms) FILTER (WHERE NOT t.reads_paused AND t.ts_wall_ms < $lo) AS since_ms,
    min(t.ts_wall_ms) FILTER (WHERE NOT t.reads_paused AND t.ts_wall_ms >= $hi) AS until_ms
  FROM throttle_events AS t WHERE {{which}} AND {{place}} GROUP BY ALL
), seen AS (
  SELECT t.cluster, t.broker, t.cnx_id FROM throttle_events AS t
  WHERE {{about}} AND {{place}} AND {IN_WINDOW} GROUP BY ALL
)
SELECT c.cluster, c.broker, c.cnx_id, c.since_ms, c.until_ms FROM changes AS c
WHERE c.paused_ms >= coalesce(c.since_ms, c.paused_ms)
  OR (c.cluster, c.broker, c.cnx_id) IN (FROM seen)
"""
OVERLAPS = "{0}.start_ms < $hi AND ({0}.is_open OR {0}.end_ms >= $lo)"
"""The condition that a pause overlaps the time asked for."""
_IS_FURTHER = "t.were_paused AND t.action = 'mark'"
_FURTHER = {
    "marks": "count(*)",
    "most_waiting": "max(t.waiting)",
    "least_msgs": "min(t.balance_msgs)",
    "least_bytes": "min(t.balance_bytes)",
}
"""Sums over the further marks while a connection is paused, by name."""

_OPEN = """
throttle_events AS t
  JOIN (
    SELECT unnest($clusters) AS cluster, unnest($brokers) AS broker, unnest($connections) AS cnx_id,
      unnest($since) AS since_ms, unnest($until) AS until_ms
  ) AS c USING (cluster, broker, cnx_id)
  WHERE t.ts_wall_ms >= c.since_ms AND t.ts_wall_ms <= c.until_ms
    AND t.ts_wall_ms >= $least AND t.ts_wall_ms <= $most
""".strip()
# As in the view throttle_intervals, which has no rows: of each pause its first and its last row, which
# are evidence, and the first and the sums of the further marks in between.
_PAUSES = f"""
WITH numbered AS MATERIALIZED (
{numbered(_OPEN, columns("throttle_events"))}
), pauses AS (
{INTERVALS}
), evidence AS (
SELECT t.cluster, t.broker, t.cnx_id, t.pause_no,
  arg_min(t, ({ORDER})) FILTER (WHERE t.starts) AS first,
  arg_min(t, ({ORDER})) FILTER (WHERE t.ends) AS last,
  arg_min(t, ({ORDER})) FILTER (WHERE {_IS_FURTHER}) AS next,
  {", ".join(f"{what} FILTER (WHERE {_IS_FURTHER}) AS {name}" for name, what in _FURTHER.items())},
  bool_or({{about}}) AS concerned
FROM numbered AS t
WHERE t.pause_no > 0 AND (t.reads_paused OR t.ends)
GROUP BY t.cluster, t.broker, t.cnx_id, t.pause_no
)
SELECT e.*, p.paused_ns, p.topics
FROM evidence AS e JOIN pauses AS p USING (cluster, broker, cnx_id, pause_no)
WHERE e.concerned AND {OVERLAPS.format("p")}
ORDER BY abs(CAST(p.start_ms AS HUGEINT) - $at), e.cluster, e.broker, e.cnx_id LIMIT $rows
"""


@dataclass(frozen=True)
class Pause:
    """One pause of a connection: its first and last row, and the further marks during it."""

    first: Row
    last: Row | None
    next: Row | None
    further: Row
    paused_ns: int
    """How long it has lasted; 0 while it does."""
    topics: Sequence[str]
    """Those with a producer on the connection."""

    def lasted(self, end: Quoted) -> str:
        """Its length, as derived of its last row."""
        return f"{end.derived('paused_ns', self.paused_ns):ns}"


@dataclass(frozen=True)
class Windows:
    """Rows of statistics for the times of some pauses."""

    rows: list[Row]

    def at(self, at: Row, **what: Any) -> list[Row]:
        """The rows of the window that contains the time of a decision."""
        what |= {"cluster": at["cluster"], "broker": at["broker"]}
        return [
            row
            for row in self.rows
            if 0 <= at["ts_wall_ms"] - row["window_start_ms"] < row["window_ms"]
            and all(row.values.get(name) == value for name, value in what.items())
        ]


def pauses_of(reader: SnapshotReader, ask: Ask) -> list[Pause]:
    """The pauses that overlap the requested time, nearest to the moment first."""
    own = "list_contains($names, t.cnx_id)"
    about, which = (THROTTLED, "true") if ask.kind == "topic" else (own, own)
    sql = _CONNECTIONS.format(about=about, which=which, place=ask.place)
    found = reader.dicts(sql, used(sql, ask.params))
    if not found:
        return []
    since = [LEAST if row["since_ms"] is None else row["since_ms"] for row in found]
    until = [MOST if row["until_ms"] is None else row["until_ms"] for row in found]
    sql = _PAUSES.format(about=about)
    return [
        _read(values)
        for values in reader.dicts(
            sql,
            used(
                sql,
                {
                    **ask.params,
                    "clusters": [row["cluster"] for row in found],
                    "brokers": [row["broker"] for row in found],
                    "connections": [row["cnx_id"] for row in found],
                    "since": since,
                    "until": until,
                    "least": min(since),
                    "most": max(until),
                },
            ),
        )
    ]


def _read(found: Mapping[str, Any]) -> Pause:
    table = "throttle_events"
    first, last, following = (
        None if found[name] is None else row_of(table, found[name])
        for name in ("first", "last", "next")
    )
    assert first is not None
    bounds = {name: first[name] for name in ("cluster", "broker", "cnx_id")}
    conditions = [
        *(f"t.{name} = ${name}" for name in bounds),
        "t.action = 'mark'",
        in_order(">", COLUMNS, first),
    ]
    if last is not None:
        conditions.append(in_order("<=", COLUMNS, last))
    where = " AND ".join(conditions)
    what = ", ".join(f"{sql} AS {name}" for name, sql in _FURTHER.items())
    values = {name: found[name] for name in _FURTHER}
    further = summary_of(table, what, where, bounds, values)
    return Pause(
        first, last, following, further, int(found["paused_ns"] or 0), found["topics"] or ()
    )


def windows_of(reader: SnapshotReader, pauses: list[Pause]) -> Windows:
    """Statistics of the limiters and topics of pauses."""
    if not pauses:
        return Windows([])
    times = [pause.first["ts_wall_ms"] for pause in pauses]
    names = {
        name
        for pause in pauses
        for name in (
            pause.first["culprit_topic"],
            pause.first["broker"],
            pause.first["limiter_name"],
            pause.first["cnx_id"],
            *pause.topics,
        )
        if name is not None
    }
    params = {"least": min(times), "most": max(times), "named": sorted(names)}
    inside = "t.ts_wall_ms > $least AND t.window_start_ms <= $most"
    shared = "OR t.limiter IN ('resource_group', 'io_thread')"
    return Windows(
        [
            *reader.rows(
                "topic_throttle_stats", f"{inside} AND list_contains($named, t.topic)", params
            ),
            *reader.rows(
                "limiter_stats",
                f"{inside} AND (list_contains($named, t.limiter_name) {shared})",
                params,
            ),
        ]
    )
