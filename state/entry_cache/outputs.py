"""The tables that `entry_cache` writes: their columns and what these mean."""

from __future__ import annotations

from state.engine.table import FLAG, LONG, RATE, TEXT, WINDOW, Output, TableColumn


def _outputs() -> tuple[Output, ...]:
    which = (
        TableColumn("policy", TEXT, "eviction strategy"),
        TableColumn("max_bytes", LONG, "size of the cache (bytes); null = no size check"),
    )
    entry = (
        TableColumn("topic", TEXT, "topic, a partition being one of its own"),
        TableColumn("ledger_id", LONG, "ledger of the entry"),
        TableColumn("entry_id", LONG, "number of the entry in it"),
    )
    stats = (
        *which,
        *WINDOW,
        TableColumn("topic", TEXT, "topic; null = the whole broker"),
        TableColumn("hits", LONG, "reads that found their entry"),
        TableColumn("misses", LONG, "reads that went to storage"),
        TableColumn("hit_bytes", LONG, "bytes read from the cache"),
        TableColumn("miss_bytes", LONG, "bytes read from storage"),
        TableColumn("hit_ratio", RATE, "hits / reads; null without reads"),
        TableColumn("inserted", LONG, "entries inserted"),
        TableColumn("evicted_time", LONG, "entries evicted for their age"),
        TableColumn("evicted_size", LONG, "entries evicted for the cache's size"),
        TableColumn("invalidated", LONG, "entries removed explicitly"),
        TableColumn("evicted_wanted", LONG, "entries evicted while reads were expected"),
        TableColumn("extended", LONG, "times an entry was kept for another time-to-live"),
        TableColumn("stashed", LONG, "entries set aside by the stash"),
        TableColumn(
            "unknown_reads",
            LONG,
            "reads after a gap of what the cache may have held: neither hit nor miss; null = none",
        ),
        TableColumn("passes_size", LONG, "passes that had to free memory; null by topic"),
        TableColumn("entries_visited", LONG, "entries that passes looked at; null by topic"),
        TableColumn("entries", LONG, "entries at the window's end"),
        TableColumn("used_bytes", LONG, "bytes of them"),
        TableColumn("wanted_bytes", LONG, "of these, bytes with expected reads"),
        TableColumn("non_evictable_bytes", LONG, "the same and entries without a counter"),
        TableColumn("max_used_bytes", LONG, "most bytes in the window; null by topic"),
    )
    evictions = (
        *which,
        *entry,
        TableColumn("entry_bytes", LONG, "size of the entry (bytes)"),
        TableColumn("cause", TEXT, "time, size or invalidated"),
        TableColumn("expected_remaining", LONG, "reads still expected; null without a counter"),
        TableColumn("requeue_count", LONG, "times that it was kept for another time-to-live"),
        TableColumn("accessed", FLAG, "whether it was read since its insertion or last extension"),
        TableColumn("age_ns", LONG, "time since its insertion (ns)"),
        TableColumn("used_bytes_before", LONG, "bytes of the cache before the removal"),
    )
    reads = (
        *which,
        entry[0],
        TableColumn("subscription", TEXT, "subscription that read"),
        TableColumn("position", TEXT, "ledger:entry that was read"),
        TableColumn("hit", FLAG, "whether it was in the cache; null = not known, after a gap"),
        TableColumn("expected_after", LONG, "reads expected afterwards; null without a counter"),
        TableColumn("reader_kind", TEXT, "tail, catch_up or replay"),
    )
    return (
        Output(
            "cache_stats",
            "Per cache and window, in total and by topic: hits, evictions, levels.",
            stats,
            sort_by=("cluster", "broker", "policy", "window_start_ms"),
        ),
        Output(
            "cache_evictions",
            "Every entry that left a cache.",
            evictions,
            sort_by=("cluster", "broker", "policy", "ts_wall_ms"),
            default=False,
        ),
        Output(
            "cache_reads",
            "Every read of an entry.",
            reads,
            sort_by=("cluster", "broker", "policy", "ts_wall_ms"),
            default=False,
        ),
    )


OUTPUTS: tuple[Output, ...] = _outputs()
