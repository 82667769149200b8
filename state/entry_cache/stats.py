"""Counters of a window as rows."""

from __future__ import annotations

import numpy as np

from state.entry_cache.layout import (
    LARGEST,
    NOBODY,
    NULL,
    ONE,
    ZERO,
    Int,
    Out,
    Record,
    World,
    compiled,
)

NS_PER_MS = np.int64(1_000_000)


@compiled
def end_ns(w: World) -> Int:
    """The end of the open window on the monotonic clock; not beyond its largest time."""
    k = w.key[0]
    ms, base = k["window_start_ms"] + k["window_ms"], ZERO
    if k["last_wall_ms"] != NULL:
        ms, base = ms - k["last_wall_ms"], k["last_ns"]
    if ms > LARGEST // NS_PER_MS or (base > 0 and ms * NS_PER_MS > LARGEST - base):
        return LARGEST
    return base + ms * NS_PER_MS


@compiled
def end_window(w: World, o: Out, next_mono: int, has_next: int) -> None:
    """Write the rows of the open window and begin the one behind it; the caller has room."""
    k = w.key[0]
    end = k["window_start_ms"] + k["window_ms"]
    wall = NULL if k["last_wall_ms"] == NULL else end
    at = end_ns(w)
    if has_next != 0 and at > next_mono:
        at = next_mono
    write_rows(w, o, at, wall)
    k["touched"] = 0
    count = len(w.variants)
    for t in range(len(w.topics)):
        w.topics[t]["event"] = 0
        for v in range(count):
            begin(w.cells[t * count + v])
    for v in range(count):
        cache = w.variants[v]
        cache["passes_size"] = cache["entries_visited"] = 0
        cache["max_used"] = cache["used"]
        if cache["count"] > 0:
            k["touched"] = 1
    k["window_start_ms"] = end


@compiled
def write_rows(w: World, o: Out, at: int, wall: int) -> None:
    """Cache by cache the row of the broker, then those of its topics by name."""
    k, count = w.key[0], len(w.variants)
    no = ZERO
    for v in range(count):
        cache = w.variants[v]
        whole = k["stats"]
        for rank in range(len(w.by_rank)):
            t = w.by_rank[rank]
            c = w.cells[t * count + v]
            if w.topics[t]["event"] == 0 and c["held"] == 0:
                continue
            if k["stats"] == whole:
                blank(o.stats[whole])
                begin_row(w, o.stats[whole], v, at, wall, NOBODY, no)
                row = o.stats[whole]
                row["entries"], row["used"] = cache["count"], cache["used"]
                row["wanted"], row["max_used"] = cache["wanted"], cache["max_used"]
                row["passes_size"] = cache["passes_size"]
                row["entries_visited"] = cache["entries_visited"]
                k["stats"] += 1
                no += ONE
            row = o.stats[k["stats"]]
            k["stats"] += 1
            blank(row)
            begin_row(w, row, v, at, wall, w.topics[t]["name"], no)
            no += ONE
            row["entries"], row["used"] = c["count"], c["used"]
            row["wanted"], row["bare"] = c["wanted"], c["bare"]
            o.stats[whole]["bare"] += c["bare"]
            count_in(row, c)
            count_in(o.stats[whole], c)
            count_in(cache, c)


@compiled
def begin_row(w: World, row: Record, v: int, at: int, wall: int, topic: int, no: int) -> None:
    """What every row has."""
    k, cache = w.key[0], w.variants[v]
    row["ts_mono_ns"], row["ts_wall_ms"], row["feed"] = at, wall, k["last_feed"]
    row["row_no"], row["topic"], row["window_start_ms"] = no, topic, k["window_start_ms"]
    row["variant"], row["policy"], row["max_bytes"] = v, cache["policy"], cache["max_bytes"]


@compiled
def blank(row: Record) -> None:
    """Nothing counted; columns that only the broker's row has are null."""
    row["hits"] = row["misses"] = row["hit_bytes"] = row["miss_bytes"] = row["inserted"] = 0
    row["evicted_time"] = row["evicted_size"] = row["invalidated"] = row["evicted_wanted"] = 0
    row["extended"] = row["stashed"] = row["unknown_reads"] = row["bare"] = 0
    row["passes_size"] = row["entries_visited"] = row["max_used"] = NULL


@compiled
def count_in(row: Record, c: Record) -> None:
    """Add the counters of a cell to a row, or to the totals of its cache."""
    row["hits"] += c["hits"]
    row["misses"] += c["misses"]
    row["hit_bytes"] += c["hit_bytes"]
    row["miss_bytes"] += c["miss_bytes"]
    row["inserted"] += c["inserted"]
    row["evicted_time"] += c["evicted_time"]
    row["evicted_size"] += c["evicted_size"]
    row["invalidated"] += c["invalidated"]
    row["evicted_wanted"] += c["evicted_wanted"]
    row["extended"] += c["extended"]
    row["stashed"] += c["stashed"]
    row["unknown_reads"] += c["unknown_reads"]


@compiled
def begin(c: Record) -> None:
    """Reset the counters of a cell."""
    c["hits"] = c["misses"] = c["hit_bytes"] = c["miss_bytes"] = c["inserted"] = 0
    c["evicted_time"] = c["evicted_size"] = c["invalidated"] = c["evicted_wanted"] = 0
    c["extended"] = c["stashed"] = c["unknown_reads"] = 0
    c["held"] = ONE if c["count"] > 0 else ZERO
