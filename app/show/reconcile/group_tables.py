"""Weir's numbers of Kafka groups between two readings of the cluster, without Spark."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.read.relations import Warehouse, connect_once
from app.show.reconcile.cluster_reading import Reading
from app.show.reconcile.group_rows import Empty, Key, Lost, WeirNumber
from app.show.reconcile.side import CHECKS_MS, CONFIG
from app.sources.kafka.offsets import FEED, NAMELESS, Place

_CHECKS = """
SELECT DISTINCT pass_ms FROM group_lag
WHERE cluster = $cluster AND pass_ms >= $least_ms AND topic IS NOT NULL ORDER BY pass_ms
"""
# Records of a poll have one time, that of its last answer. The record of the poll itself is later,
# as is one that only moves the clocks: neither has a topic.
_POLLS = """
SELECT DISTINCT ts_wall_ms FROM events
WHERE cluster = $cluster AND source_feed = $feed AND ts_wall_ms >= $least_ms
  AND topic IS NOT NULL ORDER BY ts_wall_ms
"""
_LAGS = """
SELECT "group", topic, partition, coalesce(lag, 0), log_start, log_end FROM group_lag
WHERE cluster = $cluster AND pass_ms = $at_ms AND topic IS NOT NULL
"""
_LIVE = """
SELECT DISTINCT "group", topic FROM group_lag
WHERE cluster = $cluster AND topic IS NOT NULL AND pass_ms >= $least_ms
"""
_POLLED = """
SELECT CASE WHEN event_type = 'cursor_state' THEN subscription END, topic, partition
FROM events
WHERE cluster = $cluster AND source_feed = $feed AND event_type IN ('cursor_state', 'ledger_state')
  AND ts_wall_ms >= $least_ms AND ts_wall_ms <= $at_ms
GROUP BY ALL HAVING max(ts_wall_ms) < $at_ms
"""
_LOST = """
SELECT "group", topic, partition, from_offset, to_offset FROM lost_messages
WHERE cluster = $cluster AND ts_wall_ms >= $since_ms
"""
# A read begins at the start of the log, if that is beyond the group. Of a topic that was created
# anew, what was found before is of another log.
_CURSORS = """
WITH polled AS (
  SELECT event_type, subscription, topic, partition, ts_wall_ms, mark_delete, unread,
    ledger_entries, log_start
  FROM events
  WHERE cluster = $cluster AND source_feed = $feed AND ts_wall_ms >= $least_ms
    AND event_type IN ('cursor_state', 'ledger_state', 'ledger_deleted')
    AND list_contains($topics, topic)
), anew AS (
  SELECT topic, partition, max(ts_wall_ms) AS at_ms FROM polled
  WHERE event_type = 'ledger_deleted' GROUP BY ALL
)
SELECT c.subscription, c.topic, c.partition, c.ts_wall_ms,
  CAST(split_part(c.mark_delete, ':', 2) AS BIGINT) + 1,
  c.unread = 0 AND c.ts_wall_ms > coalesce(n.at_ms, 0), l.log_start, l.ledger_entries
FROM polled AS c
JOIN polled AS l ON l.event_type = 'ledger_state' AND l.topic = c.topic
  AND l.partition = c.partition AND l.ts_wall_ms = c.ts_wall_ms
LEFT JOIN anew AS n ON n.topic = c.topic AND n.partition = c.partition
WHERE c.event_type = 'cursor_state'
"""


@dataclass(frozen=True)
class Tables:
    """The tables of one cluster."""

    warehouse: Warehouse
    cluster: str

    def live(self, now_ms: int) -> tuple[set[str], set[str]]:
        """Topics and groups of the newest checks."""
        rows = self._ask(_LIVE, {"least_ms": now_ms - CHECKS_MS})
        return {topic for _, topic in rows}, {group for group, _ in rows if group != NAMELESS}

    def between(self, before: Reading, after: Reading, since_ms: int | None = None) -> WeirNumber:
        """Weir's side between two readings; what polls found empty since `since_ms`."""
        least_ms = before.from_ms - CHECKS_MS
        least = {"least_ms": least_ms}
        checks, polls = ([int(at) for (at,) in self._ask(sql, least)] for sql in (_CHECKS, _POLLS))
        check = next(
            (at for at in reversed(checks) if _lies_between(at, polls, before, after)), None
        )
        later = polls[bisect_right(polls, after.to_ms) :][:2]
        lags: dict[Key, tuple[int, Any]] = {}
        stale: frozenset[tuple[str | None, Place]] = frozenset()
        if check is not None:
            lags = self._lags(check)
            of_poll = {**least, "at_ms": polls[bisect_left(polls, check) - 1]}
            stale = frozenset(
                (group, Place(topic, partition))
                for group, topic, partition in self._ask(_POLLED, of_poll)
            )
        earlier = max((at for at in checks if at <= before.from_ms), default=None)
        empty, moved = self._cursors(
            before, after, least_ms if since_ms is None else since_ms, later
        )
        return WeirNumber(
            check,
            len(later) == 2 and checks[-1:] > later[1:],
            {key: lag for key, (lag, _) in lags.items() if lag},
            {place: log for (_, place), (_, log) in lags.items() if None not in log},
            frozenset()
            if earlier is None
            else frozenset(key for key, (lag, _) in self._lags(earlier).items() if lag),
            stale,
            self._lost(before.from_ms),
            empty,
            moved,
        )

    def _lags(self, at_ms: int) -> dict[Key, tuple[int, tuple[int, int]]]:
        return {
            (group, Place(topic, partition)): (lag, (start, end))
            for group, topic, partition, lag, start, end in self._ask(_LAGS, {"at_ms": at_ms})
        }

    def _lost(self, since_ms: int) -> dict[Key, list[Lost]]:
        found: dict[Key, list[Lost]] = {}
        for group, topic, partition, begin, end in self._ask(_LOST, {"since_ms": since_ms}):
            found.setdefault((group, Place(topic, partition)), []).append(Lost(begin, end))
        return found

    def _cursors(
        self, before: Reading, after: Reading, since_ms: int, later: list[int]
    ) -> tuple[dict[Key, list[Empty]], dict[Key, list[int | None]]]:
        """Of topics whose logs were shortened: what polls found empty, and the offsets later."""
        shortened = {
            Place.of_text(text).topic
            for text, (start, _) in after.logs.items()
            if start > before.logs.get(text, [start])[0]
        }
        if not shortened:
            return {}, {}
        empty: dict[Key, list[Empty]] = {}
        offsets: dict[Key, dict[int, int]] = {}
        for group, topic, partition, at_ms, offset, is_empty, start, end in self._ask(
            _CURSORS, {"least_ms": since_ms, "topics": sorted(shortened)}
        ):
            key = group, Place(topic, partition)
            offsets.setdefault(key, {})[at_ms] = offset
            if is_empty:
                empty.setdefault(key, []).append(Empty(max(offset, start or 0), end))
        return empty, {key: [found.get(at_ms) for at_ms in later] for key, found in offsets.items()}

    def _ask(self, sql: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        given = {"cluster": self.cluster, "feed": FEED, **params}
        given = {name: value for name, value in given.items() if f"${name}" in sql}
        with connect_once(self.warehouse, sql, given, config=CONFIG) as connection:
            return connection.execute(sql, given).fetchall()


def _lies_between(at: int, polls: list[int], before: Reading, after: Reading) -> bool:
    """Whether the newest poll before a check began after the first reading and ended before the
    second one. A poll begins after the one before it."""
    place = bisect_left(polls, at) - 1
    if place < 1 or at in polls[place + 1 : place + 2]:
        return False
    return polls[place - 1] >= before.to_ms and polls[place] <= after.from_ms
