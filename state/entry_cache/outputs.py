"""The tables that `entry_cache` writes: their columns, what these mean, and the kernel's rows."""

from __future__ import annotations

from state.engine.table import GIVEN, ROW, Output, begins, flag, long, rate, text, windows

CAUSES = ("time", "size", "invalidated")
SUFFIXES = ("", "+extended_out", "+unread", "+never_wanted")
RULES = tuple(cause + suffix for cause in CAUSES for suffix in SUFFIXES)
POLICIES = ("expected_reads", "expected_reads_stash", "fifo", "proportional", "lru", "belady")
READERS = ("tail", "catch_up", "replay")

_BEGIN = begins(ROW, cluster=(GIVEN,), broker=(GIVEN,), source_feed=(ROW, "feed"))

_POLICY = text("policy", "eviction strategy", words=POLICIES, needed=True)
_MAX_BYTES = long("max_bytes", "size of the cache (bytes); null = no size check", least=0)
_TOPIC = text("topic", "topic, a partition being one of its own", needed=True)
STATS = Output(
    "cache_stats",
    "Per cache and window, in total and by topic: hits, evictions, levels.",
    (
        _POLICY,
        _MAX_BYTES,
        *windows("window_start_ms"),
        text("topic", "topic; null = the whole broker"),
        long("hits", "reads that found their entry", least=0, needed=True),
        long("misses", "reads that went to storage", least=0, needed=True),
        long("hit_bytes", "bytes read from the cache", least=0, needed=True),
        long("miss_bytes", "bytes read from storage", least=0, needed=True),
        rate("hit_ratio", "hits / reads; null without reads", of=GIVEN, least=0, most=1),
        long("inserted", "entries inserted", least=0, needed=True),
        long("evicted_time", "entries evicted for their age", least=0, needed=True),
        long("evicted_size", "entries evicted for the cache's size", least=0, needed=True),
        long("invalidated", "entries removed explicitly", least=0, needed=True),
        long("evicted_wanted", "entries evicted while reads were expected", least=0, needed=True),
        long("extended", "times an entry was kept for another time-to-live", least=0, needed=True),
        long("stashed", "entries set aside by the stash", least=0, needed=True),
        long(
            "unknown_reads",
            "reads after a gap of what the cache may have held: neither hit nor miss; null = none",
            null=0,
        ),
        long("passes_size", "passes that had to free memory; null by topic", least=0),
        long("entries_visited", "entries that passes looked at; null by topic", least=0),
        long("entries", "entries at the window's end", least=0, needed=True),
        long("used_bytes", "bytes of them", "used", least=0, needed=True),
        long("wanted_bytes", "of these, bytes with expected reads", "wanted", least=0, needed=True),
        long(
            "non_evictable_bytes",
            "the same and entries without a counter",
            of=GIVEN,
            least=0,
            needed=True,
        ),
        long("max_used_bytes", "most bytes in the window; null by topic", "max_used", least=0),
    ),
    sort_by=("cluster", "broker", "policy", "window_start_ms"),
    begins=_BEGIN,
    rules=("window",),
)
EVICTIONS = Output(
    "cache_evictions",
    "Every entry that left a cache.",
    (
        _POLICY,
        _MAX_BYTES,
        _TOPIC,
        long("ledger_id", "ledger of the entry", "ledger", needed=True),
        long("entry_id", "number of the entry in it", "entry", needed=True),
        long("entry_bytes", "size of the entry (bytes)", "bytes", least=0, needed=True),
        text("cause", "time, size or invalidated", words=CAUSES, needed=True),
        long("expected_remaining", "reads still expected; null without a counter", of=GIVEN),
        long(
            "requeue_count", "times that it was kept for another time-to-live", least=0, needed=True
        ),
        flag("accessed", "whether it was read since its insertion or last extension", needed=True),
        long("age_ns", "time since its insertion (ns)", least=0, needed=True),
        long(
            "used_bytes_before",
            "bytes of the cache before the removal",
            "used_before",
            least=0,
            needed=True,
        ),
    ),
    sort_by=("cluster", "broker", "policy", "ts_wall_ms"),
    default=False,
    begins=_BEGIN,
    rules=RULES,
)
READS = Output(
    "cache_reads",
    "Every read of an entry.",
    (
        _POLICY,
        _MAX_BYTES,
        _TOPIC,
        text("subscription", "subscription that read"),
        text("position", "ledger:entry that was read", "ledger", "entry", needed=True),
        flag("hit", "whether it was in the cache; null = not known, after a gap", of=GIVEN),
        long("expected_after", "reads expected afterwards; null without a counter", "expected"),
        text("reader_kind", "tail, catch_up or replay", "reader", words=READERS, needed=True),
    ),
    sort_by=("cluster", "broker", "policy", "ts_wall_ms"),
    default=False,
    begins=_BEGIN,
    rules=("miss", "hit", "unknown"),
)
OUTPUTS = (
    STATS,
    EVICTIONS,
    READS,
)
EVICTION = EVICTIONS.row("variant", "counted", "expected")
READ = READS.row("variant")
STATISTICS = STATS.row("variant", "bare")
