"""Weir's numbers for a span of one broker, from its tables, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from app.ingest.rules import POLLED_FEEDS
from app.reconcile.scrape import SUBSCRIPTIONS
from app.reconcile.spans import Counted, Key, Span, Weir
from app.warehouse.relations import Warehouse, connect
from app.warehouse.spelling import TOPIC

if TYPE_CHECKING:
    from app.config.settings import Settings

LIMITS = {"memory_limit": "512MB", "threads": "1"}
"""Limits of DuckDB, so that a comparison leaves memory and cores to the stream."""
PAUSE_MS = 200
"""Pauses of the model begin and end some milliseconds beside the broker's."""
CHECKS_MS = 900_000
"""How far the checks of backlogs before and after a reading are looked for."""
MINUTE_MS = 60_000
_WINDOWS = """
SELECT topic, CAST(sum(messages) AS BIGINT), CAST(sum(bytes) AS BIGINT) FROM topic_throttle_stats
WHERE cluster = $cluster AND broker = $broker
  AND window_start_ms >= $start_ms AND window_start_ms < $end_ms
GROUP BY topic
"""
# The archive has repeated records as well.
_PUBLISHES = f"""
SELECT topic,
  CAST(coalesce(sum(messages) FILTER (WHERE ts_wall_ms < $at_ms AND ts_wall_ms >= $window_ms), 0)
    AS BIGINT),
  CAST(coalesce(sum(bytes) FILTER (WHERE ts_wall_ms < $at_ms AND ts_wall_ms >= $window_ms), 0)
    AS BIGINT),
  CAST(coalesce(sum(messages) FILTER (WHERE ts_wall_ms >= $from_ms AND ts_wall_ms <= $to_ms), 0)
    AS BIGINT),
  CAST(coalesce(sum(bytes) FILTER (WHERE ts_wall_ms >= $from_ms AND ts_wall_ms <= $to_ms), 0)
    AS BIGINT)
FROM (
  SELECT DISTINCT source_feed, seq, ts_mono_ns, ts_wall_ms, cnx_id, producer_id, sequence_id,
    {TOPIC} AS topic, coalesce(num_messages, 1) AS messages, coalesce(entry_bytes, 0) AS bytes
  FROM events
  WHERE event_type = 'publish' AND cluster = $cluster AND broker = $broker
    AND ts_wall_ms >= $least_ms AND ts_wall_ms <= $most_ms
) GROUP BY 1
"""
# The broker counts a pause for every topic with a producer on the connection. A mark within a pause
# may be one of its own at the broker, where the pause before ended some milliseconds earlier.
_PAUSES = """
SELECT topic, count(*)
FROM (
  SELECT unnest(list_prepend(topic, coalesce(collateral_topics, []))) AS topic
  FROM throttle_events
  WHERE cluster = $cluster AND broker = $broker AND action IN ('mark', 'pause')
    AND transition <> 'Dropped'
    AND ts_wall_ms >= $from_ms AND ts_wall_ms <= $to_ms
) GROUP BY topic
"""
_CACHE = """
SELECT window_start_ms, window_ms, inserted, evicted_time + evicted_size + invalidated, misses,
  hits, entries, used_bytes, max_used_bytes
FROM cache_stats
WHERE cluster = $cluster AND broker = $broker AND topic IS NULL AND policy = $policy
  AND window_start_ms >= $least_ms AND window_start_ms <= $most_ms
ORDER BY window_start_ms
"""
_CHECKS = """
SELECT pass_ms, topic, CAST(max(backlog_bytes) AS BIGINT) FROM backlog_checks
WHERE cluster = $cluster AND broker = $broker AND pass_ms >= $least_ms AND pass_ms <= $most_ms
GROUP BY pass_ms, topic
"""
_SUBSCRIPTIONS = """
SELECT pass_ms, topic, CAST(sum(backlog_entries) AS BIGINT) FROM backlog_subscriptions
WHERE cluster = $cluster AND broker = $broker AND pass_ms >= $least_ms AND pass_ms <= $most_ms
  AND coalesce(kind, 'subscription') NOT IN ('replicator', 'deduplication')
GROUP BY pass_ms, topic
"""
_BLIND = """
SELECT DISTINCT job FROM coverage_gaps
WHERE cluster = $cluster AND broker = $broker AND coalesce(gap_from_wall_ms, -1) < $end_ms
  AND blind_until_ms > $start_ms
"""
_FIRST_MINUTE = """
SELECT min(minute_ms) FROM coverage_counts
WHERE cluster = $cluster AND broker = $broker AND minute_ms > 0
"""
_FIRST = """
SELECT min(ts_wall_ms) FROM events
WHERE cluster = $cluster AND broker = $broker
  AND ts_wall_ms >= $start_ms AND ts_wall_ms < $end_ms
"""
_NEWEST = """
SELECT max(ts_wall_ms) FROM {table}
WHERE cluster = $cluster AND broker = $broker AND ts_wall_ms >= $start_ms
"""
_UNLOADED = f"""
SELECT DISTINCT {TOPIC}
FROM events
WHERE event_type = 'entry_invalidated' AND cluster = $cluster AND broker = $broker
  AND topic IS NOT NULL AND ts_wall_ms >= $start_ms AND ts_wall_ms <= $end_ms
"""
# A reader at the end of a topic may be given an entry before the callback of its publish: Weir
# counts a miss, the broker a hit.
_EARLY = f"""
WITH records AS (
  SELECT event_type, {TOPIC} AS topic, ledger_id, entry_id, min((ts_mono_ns, seq)) AS first
  FROM events
  WHERE event_type IN ('dispatch', 'entry_added') AND cluster = $cluster AND broker = $broker
    AND ts_wall_ms >= $start_ms AND ts_wall_ms <= $end_ms
  GROUP BY ALL
)
SELECT count(*) FROM records AS d JOIN records AS a
  ON a.event_type = 'entry_added' AND a.topic = d.topic AND a.ledger_id = d.ledger_id
  AND a.entry_id = d.entry_id
WHERE d.event_type = 'dispatch' AND d.first < a.first
"""
_OF_RATE_LIMITS = ("topic_throttle_stats", "limiter_stats", "throttle_events")


def weir(settings: Settings, warehouse: Warehouse, span: Span) -> Weir:
    """Weir's side of a span."""
    return _Side(settings, warehouse, span).weir()


def early_reads(settings: Settings, warehouse: Warehouse, span: Span) -> int:
    """Entries that the feed has as delivered before it has them as published: at most so many
    misses of Weir are hits of the broker. It reads all deliveries of the span."""
    return _Side(settings, warehouse, span).early_reads()


class _Window(NamedTuple):
    """A statistics window of a broker's cache: a row of _CACHE."""

    start_ms: int
    length_ms: int
    inserted: int
    evicted: int
    misses: int
    hits: int
    entries: int
    used_bytes: int
    max_used_bytes: int

    @property
    def end_ms(self) -> int:
        """Its end, exclusive."""
        return self.start_ms + self.length_ms


_EMPTY = _Window(*(0,) * len(_Window._fields))
"""A window without a row: nothing happens, and the cache is empty."""


@dataclass(frozen=True)
class _Side:
    settings: Settings
    warehouse: Warehouse
    span: Span

    def weir(self) -> Weir:
        counted: dict[Key, Counted] = {}
        whole = set()
        if "rate_limits" in self.settings.jobs:
            counted |= self._publishes() | self._pauses()
            whole |= {"rate_limits"} if self._reached() else set()
        if "entry_cache" in self.settings.jobs:
            found, complete = self._cache()
            counted |= found
            whole |= {"entry_cache"} if complete or self._is_past() else set()
        blind = self._blind()
        if "backlog" in self.settings.jobs:
            found, passes = self._backlogs()
            counted |= found
            if not passes[0] and not passes[1]:
                blind.setdefault("backlog", "NO_CHECK" if self._is_past() else "NOT_REACHED")
            whole |= {"backlog"} if self._all_checked(passes[1]) else set()
        return Weir(counted, blind, self._unloaded(), frozenset(whole))

    def early_reads(self) -> int:
        ((found,),) = self._ask(
            _EARLY, {"start_ms": self.span.before.from_ms, "end_ms": self.span.after.to_ms}
        )
        return int(found)

    # How publishes are counted: whole windows, and single records at the two ends

    @cached_property
    def _window_ms(self) -> int:
        return self.settings.stats_window_ms

    def _window_of(self, at_ms: int) -> int:
        return at_ms // self._window_ms * self._window_ms

    @property
    def _last_window_ms(self) -> int:
        return self._window_of(self.span.end_ms)

    def _publishes(self) -> dict[Key, Counted]:
        span = self.span
        sums: dict[str, list[int]] = {}
        bounds = {"start_ms": self._window_of(span.start_ms), "end_ms": self._last_window_ms}
        for topic, messages, size in self._ask(_WINDOWS, bounds):
            sums[topic] = [messages, size, 0, 0]
        for scrape, sign in ((span.before, -1), (span.after, 1)):
            window_ms = self._window_of(scrape.at_ms)
            for topic, *edge in self._ask(
                _PUBLISHES,
                {
                    "window_ms": window_ms,
                    "at_ms": scrape.at_ms,
                    "from_ms": scrape.from_ms,
                    "to_ms": scrape.to_ms,
                    "least_ms": min(window_ms, scrape.from_ms),
                    "most_ms": scrape.to_ms,
                },
            ):
                total = sums.setdefault(topic, [0, 0, 0, 0])
                for i, amount in enumerate(edge):
                    total[i] += sign * amount if i < 2 else amount
        return {
            key: Counted(value, bound)
            for topic, (messages, size, messages_off, size_off) in sums.items()
            for key, value, bound in (
                (("messages_in", topic), messages, messages_off),
                (("bytes_in", topic), size, size_off),
            )
        }

    def _pauses(self) -> dict[Key, Counted]:
        """The broker's number begins anew at each update of its statistics: it is anything up to
        the pauses of a whole period."""
        chosen, end = self.settings.reconcile, self.span.after
        period_ms = chosen.stats_period_ms if chosen is not None else MINUTE_MS
        found = self._ask(
            _PAUSES,
            {
                "from_ms": end.from_ms - period_ms - PAUSE_MS,
                "to_ms": end.to_ms + PAUSE_MS,
            },
        )
        return {("publish_limited_times", topic): Counted(0, 0, n) for topic, n in found}

    # The cache has windows only, so those at the two ends are shared by time

    def _cache(self) -> tuple[dict[Key, Counted], bool]:
        """The numbers, and whether the last window is there."""
        span = self.span
        rows = self._ask(
            _CACHE,
            {
                "policy": self.settings.job_params("entry_cache")["policy"],
                "least_ms": self._window_of(span.start_ms) - self._window_ms,
                "most_ms": self._last_window_ms + self._window_ms,
            },
        )
        windows = [_Window(*(int(value or 0) for value in row)) for row in rows]
        if not windows:
            return {}, False
        found: dict[Key, Counted] = {
            (f"cache_{name}", None): _share(windows, name, span)
            for name in ("inserted", "evicted", "misses", "hits")
        }
        begin_ms = self._last_window_ms
        before = next((w for w in windows if w.end_ms == begin_ms), _EMPTY)
        within = next((w for w in windows if w.start_ms == begin_ms), _EMPTY)
        entries = before.entries, within.entries
        used = before.used_bytes, within.used_bytes
        left = max(min(entries) - within.evicted, 0)
        found["cache_entries", None] = Counted(left, 0, max(entries) + within.inserted)
        found["cache_used_bytes", None] = Counted(
            min(used) * left // max(min(entries), 1), 0, max(*used, within.max_used_bytes)
        )
        return found, windows[-1].end_ms > span.end_ms

    # Backlogs are known at the checks

    def _backlogs(self) -> tuple[dict[Key, Counted], tuple[int | None, int | None]]:
        """The numbers, and the times of the checks before and after the end of the span."""
        end = self.span.after
        around = {"least_ms": end.from_ms - CHECKS_MS, "most_ms": end.to_ms + CHECKS_MS}
        found: dict[Key, Counted] = {}
        checks = {
            "backlog_bytes": self._ask(_CHECKS, around),
            "backlog_entries": self._ask(_SUBSCRIPTIONS, around),
        }
        passes = {int(row[0]) for rows in checks.values() for row in rows}
        before = max((p for p in passes if p <= end.from_ms), default=None)
        after = min((p for p in passes if p >= end.to_ms), default=None)
        near = [p for p in (before, after) if p is not None]
        came = self._published(min(near), max(near)) if near else {}
        for name, rows in checks.items():
            values: dict[str, dict[int, int]] = {}
            for pass_ms, topic, value in rows:
                if pass_ms in near:
                    values.setdefault(topic, {})[pass_ms] = value or 0
            topics = {*values, *came} if near else set(values)
            for topic in topics:
                ends = [values.get(topic, {}).get(p, 0) for p in near]
                messages, size = came.get(topic, (0, 0))
                more = size if name == "backlog_bytes" else messages * self._subscriptions(topic)
                found[name, topic] = Counted(max(min(ends) - more, 0), 0, max(ends) + more)
        return found, (before, after)

    def _all_checked(self, pass_ms: int | None) -> bool:
        """Whether there is a check so much later that those of all topics up to a time must be
        there: those of idle ones come by `idle_advance_ms` later."""
        return pass_ms is not None and self._has(
            "backlog_checks", pass_ms + self.settings.idle_advance_ms + self._window_ms
        )

    def _published(self, from_ms: int, to_ms: int) -> dict[str, tuple[int, int]]:
        """Messages and bytes of the windows from one check to another: what may have come into a
        backlog, and gone. A feed without publishes has none, so the broker's own counts of the span
        stand for them."""
        rows = self._ask(
            _WINDOWS, {"start_ms": self._window_of(from_ms), "end_ms": max(from_ms, to_ms) + 1}
        )
        if (
            rows
            or self.settings.source is None
            or (self.settings.source.format not in POLLED_FEEDS)
        ):
            return {topic: (messages, size) for topic, messages, size in rows}
        before, after = self.span.before.topics, self.span.after.topics
        return {
            topic: (came["messages_in"], came["bytes_in"])
            for topic in after
            for came in [
                {
                    name: round(
                        max(after[topic].get(name, 0) - before.get(topic, {}).get(name, 0), 0)
                    )
                    for name in ("messages_in", "bytes_in")
                }
            ]
        }

    def _subscriptions(self, topic: str) -> int:
        return round(self.span.after.topics.get(topic, {}).get(SUBSCRIPTIONS, 1))

    # What prevents a comparison

    def _blind(self) -> dict[str, str]:
        span, jobs = self.span, self.settings.jobs
        between = {"start_ms": span.before.from_ms, "end_ms": span.after.to_ms}
        blind = {job: "GAP" for (job,) in self._ask(_BLIND, between)}
        if self._began_in_it():
            return dict.fromkeys(jobs, "FEED_BEGAN")
        sampled = self.settings.reconcile and self.settings.reconcile.sampled_by
        if sampled == "connection":
            return {**blind, "rate_limits": "SAMPLED", "entry_cache": "SAMPLED"}
        return {**blind, "entry_cache": "SAMPLED"} if sampled == "topic" else blind

    def _began_in_it(self) -> bool:
        """Whether the first record of the broker is not before the span."""
        ((first,),) = self._ask(_FIRST_MINUTE, {})
        if first is None:
            return False
        start_ms = self.span.before.from_ms
        if start_ms >= first + MINUTE_MS:
            return False
        minute = {"start_ms": first, "end_ms": first + MINUTE_MS}
        ((record,),) = self._ask(_FIRST, minute)
        return record is None or record > start_ms

    def _unloaded(self) -> frozenset[str]:
        if self.settings.reconcile is None:
            return frozenset()
        between = {"start_ms": self.span.before.from_ms, "end_ms": self.span.after.to_ms}
        return frozenset(topic for (topic,) in self._ask(_UNLOADED, between))

    def _reached(self) -> bool:
        """Whether the archive has a record behind the span, and the tables of the job have rows up
        to its last whole window; or a record comes so much later that the job must be past it."""
        if self._is_past():
            return True
        return self._has("events", self.span.end_ms) and any(
            self._has(table, self._last_window_ms) for table in _OF_RATE_LIMITS
        )

    @cached_property
    def _later_ms(self) -> int:
        return self._last_window_ms + self._window_ms + self.settings.idle_advance_ms

    def _is_past(self) -> bool:
        """Whether the archive has a record that closes the last window of every job."""
        return self._has("events", self._later_ms)

    def _has(self, table: str, from_ms: int) -> bool:
        """Whether a table has a row of the broker at or after a time."""
        ((newest,),) = self._ask(_NEWEST.format(table=table), {"start_ms": from_ms})
        return newest is not None

    @property
    def _cluster(self) -> str:
        """The cluster as records name it; polls name it as they are told to."""
        source = self.settings.source
        admin = getattr(source, "admin", None)
        if source is not None and source.format == "pulsar_admin" and admin is not None:
            return str(admin.cluster)
        return self.span.after.cluster

    def _ask(self, sql: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        given = {**params, "cluster": self._cluster, "broker": self.span.after.broker}
        with connect(
            self.warehouse, sql, given, alone=True, in_order=False, limits=LIMITS
        ) as connection:
            return connection.execute(sql, given).fetchall()


def _share(windows: list[_Window], counter: str, span: Span) -> Counted:
    """The part of the windows' counter that lies in the span. A window that the span cuts counts by
    the share of its time, and may be off by the larger of its two parts."""
    total, off = 0.0, 0.0
    for window in windows:
        counted = getattr(window, counter)
        inside = min(window.end_ms, span.end_ms) - max(window.start_ms, span.start_ms)
        share = max(inside, 0) / window.length_ms
        total += share * counted
        if _is_cut(window.start_ms, window.length_ms, span):
            off += max(share, 1 - share) * counted
    return Counted(round(total), -int(-off // 1))


def _is_cut(start_ms: int, length_ms: int, span: Span) -> bool:
    return any(
        start_ms < scrape.to_ms and scrape.from_ms < start_ms + length_ms
        for scrape in (span.before, span.after)
    )
