"""What a broker counts of its cache, against the tables of the job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from app.read.spelling import TOPIC
from app.show.reconcile.measures import Measure
from app.show.reconcile.scrape import IN_REPLAY
from app.show.reconcile.side import Numbers, WeirSide
from app.show.reconcile.spans import Counted, Key, ReadingSpan, Row, differs
from state.entry_cache.declaration import NAME

MEASURES = (
    Measure(
        "cache_inserted",
        NAME,
        "pulsar_ml_cache_inserted_entries_total",
        "counter",
        True,
        "entries inserted into the cache",
    ),
    Measure(
        "cache_evicted",
        NAME,
        "pulsar_ml_cache_evicted_entries_total",
        "counter",
        True,
        "entries that left the cache",
    ),
    Measure(
        "cache_misses",
        NAME,
        "pulsar_ml_cache_pendingreads_entries_read_total",
        "counter",
        True,
        "entries read from storage",
        least=True,
    ),
    Measure(
        "cache_hits",
        NAME,
        "pulsar_ml_cache_hits_rate",
        "rate",
        True,
        "reads that found their entry",
    ),
    Measure(
        "cache_entries",
        NAME,
        "pulsar_ml_cache_entries",
        "gauge",
        True,
        "entries in the cache",
    ),
    Measure(
        "cache_used_bytes",
        NAME,
        "pulsar_ml_cache_used_size",
        "gauge",
        True,
        "bytes in the cache",
    ),
)
SAMPLED: frozenset[str] = frozenset({"connection", "topic"})
"""Values of `reconcile.sampled_by` under which the numbers are no comparison."""
_CACHE = """
SELECT window_start_ms, window_ms, inserted, evicted_time + evicted_size + invalidated, misses,
  hits, entries, used_bytes, max_used_bytes
FROM cache_stats
WHERE cluster = $cluster AND broker = $broker AND topic IS NULL AND policy = $policy
  AND window_start_ms >= $least_ms AND window_start_ms <= $most_ms
ORDER BY window_start_ms
"""
_CHUNKED = """
SELECT DISTINCT topic FROM chunk_topic_stats WHERE cluster = $cluster
"""
ENTRY_BYTES = (5 << 20) + (10 << 10)
"""The largest entry: the default of `maxMessageSize`, and its frame."""
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


def numbers(side: WeirSide) -> Numbers:
    """The cache has windows only, so those at the two ends are shared by time."""
    span, past = side.span, side.is_past()
    rows = side.ask(
        _CACHE,
        {
            "policy": side.settings.job_params(NAME)["policy"],
            "least_ms": side.window_of(span.start_ms) - side.window_ms,
            "most_ms": side.last_window_ms + side.window_ms,
        },
    )
    windows = [_Window(*(int(value or 0) for value in row)) for row in rows]
    found = _of_windows(windows, side) if windows else {}
    reached = bool(windows) and windows[-1].end_ms > span.end_ms
    return Numbers(_with_replays(found, side), reached or past)


def _of_windows(windows: list[_Window], side: WeirSide) -> dict[Key, Counted]:
    span = side.span
    found: dict[Key, Counted] = {
        (f"cache_{name}", None): _share(windows, name, span)
        for name in ("inserted", "evicted", "misses", "hits")
    }
    begin_ms = side.last_window_ms
    before = next((w for w in windows if w.end_ms == begin_ms), _EMPTY)
    within = next((w for w in windows if w.start_ms == begin_ms), _EMPTY)
    entries = before.entries, within.entries
    used = before.used_bytes, within.used_bytes
    left = max(min(entries) - within.evicted, 0)
    found["cache_entries", None] = Counted(left, 0, max(entries) + within.inserted)
    found["cache_used_bytes", None] = Counted(
        min(used) * left // max(min(entries), 1), 0, max(*used, within.max_used_bytes)
    )
    return found


def _with_replays(found: dict[Key, Counted], side: WeirSide) -> dict[Key, Counted]:
    """With what the broker may keep beside it, by topic: a chunk without its consumer is read and put
    back again and again, of which no record tells, and each read keeps it for a while. Other entries
    that wait in a replay queue are read when a consumer can take them."""
    ends = (side.span.before.topics, side.span.after.topics)
    waiting = {t for end in ends for t, values in end.items() if values.get(IN_REPLAY)}
    chunked = {topic for (topic,) in side.ask(_CHUNKED, {})} if waiting else set()
    before, entries, sizes = (
        {t: round(max(end.get(t, {}).get(name, 0) for end in of)) for t in waiting & chunked}
        for of, name in ((ends[:1], IN_REPLAY), (ends, IN_REPLAY), (ends, "backlog_bytes"))
    )
    sizes = {topic: min(size, entries[topic] * ENTRY_BYTES) for topic, size in sizes.items()}
    for name, less, more in (
        ("cache_evicted", entries, before),
        ("cache_entries", {}, entries),
        ("cache_used_bytes", {}, sizes),
    ):
        own = found.get((name, None), Counted())
        most = (own.value if own.most is None else own.most) + sum(more.values())
        if entries:
            least = max(own.value - sum(less.values()), 0)
            found[name, None] = Counted(least, own.bound, most)
    kept = {"cache_entries": entries, "cache_used_bytes": sizes}.items()
    return found | {(name, topic): Counted(n) for name, of in kept for topic, n in of.items()}


def further(side: WeirSide, rows: Sequence[Row]) -> dict[str, int]:
    """By measure what else it may be off by, where rows differ."""
    if not any(differs(row) for row in rows if row["measure"] == "cache_misses"):
        return {}
    return {"cache_misses": early_reads(side)}


def early_reads(side: WeirSide) -> int:
    """Entries that the feed has as delivered before it has them as published: at most so many
    misses of Weir are hits of the broker. It reads all deliveries of the span."""
    ((found,),) = side.ask(
        _EARLY, {"start_ms": side.span.before.from_ms, "end_ms": side.span.after.to_ms}
    )
    return int(found)


def _share(windows: list[_Window], counter: str, span: ReadingSpan) -> Counted:
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


def _is_cut(start_ms: int, length_ms: int, span: ReadingSpan) -> bool:
    return any(
        start_ms < scrape.to_ms and scrape.from_ms < start_ms + length_ms
        for scrape in (span.before, span.after)
    )
