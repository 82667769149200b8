"""Passes over a cache: by age and by size, as its policy has it."""

from __future__ import annotations

import numpy as np

from state.entry_cache.cache import due_from, due_pass, extend, extends, remove, set_aside
from state.entry_cache.heaps import cells_before, heap_up, take_first, ts_of_lowest
from state.entry_cache.layout import (
    BELADY,
    LARGEST,
    NOBODY,
    NULL,
    ONE,
    PENDING_STASH,
    PENDING_STOP,
    PROPORTIONAL,
    SIZE,
    SMALLEST,
    STASHING,
    TIME,
    ZERO,
    Int,
    Out,
    World,
    compiled,
)
from state.entry_cache.positions import lowest

HALF = 0.5


@compiled
def earlier(now: int, span: int) -> Int:
    """A time before another, at least the smallest."""
    return now - span if now >= SMALLEST + span else SMALLEST


@compiled
def later(ts: int, span: int) -> Int:
    """A time after another, at most the largest."""
    return ts + span if ts <= LARGEST - span else LARGEST


@compiled
def need_of(w: World, v: int) -> Int:
    """Bytes that a size pass has to free; 0 = no pass is needed."""
    cache = w.variants[v]
    if cache["max_bytes"] == NULL or cache["used"] <= cache["trigger"]:
        return ZERO
    if cache["policy"] == BELADY:
        return cache["used"] - cache["trigger"]
    return max(cache["used"] - cache["goal"], ZERO)


@compiled
def check_size(w: World, o: Out, v: int, now: int, stamp: int) -> None:
    """Run a size pass if the cache is larger than its trigger; extended entries get `stamp`."""
    need = need_of(w, v)
    if need > 0:
        size_pass(w, o, v, need, now, stamp)


@compiled
def size_pass(w: World, o: Out, v: int, need: int, now: int, stamp: int) -> None:
    """Free at least `need` bytes, as far as the policy allows."""
    if need <= 0:
        raise ValueError("a size pass for no bytes")
    cache = w.variants[v]
    cache["passes_size"] += 1
    cache["passes"] += 1
    if cache["policy"] == STASHING:
        size_stash(w, o, v, need, now)
    elif cache["policy"] == PROPORTIONAL:
        size_proportional(w, o, v, need)
    elif cache["policy"] == BELADY:
        size_belady(w, o, v, need)
    else:
        size_queue(w, o, v, need, stamp)


@compiled
def time_pass(w: World, o: Out, v: int, threshold: int, now: int, stamp: int) -> None:
    """Remove entries older than the threshold, as far as the policy allows."""
    cache = w.variants[v]
    if cache["policy"] == STASHING:
        time_stash(w, o, v, threshold, now)
    elif cache["policy"] == PROPORTIONAL:
        time_proportional(w, o, v, threshold)
    elif cache["policy"] != BELADY:
        time_queue(w, o, v, threshold, stamp)


@compiled
def visit(w: World, v: int, count: int) -> None:
    """Entries that a pass has looked at."""
    w.variants[v]["entries_visited"] += count
    w.variants[v]["work"] += count


@compiled
def size_queue(w: World, o: Out, v: int, need: int, stamp: int) -> None:
    """Oldest first; protected entries move to the tail."""
    cache = w.variants[v]
    freed = ZERO
    while freed < need and cache["head"] >= 0:
        x = cache["head"]
        visit(w, v, ONE)
        if extends(w, v, x):
            extend(w, v, x, stamp)
        else:
            freed += remove(w, o, v, x, SIZE)


@compiled
def time_queue(w: World, o: Out, v: int, threshold: int, stamp: int) -> None:
    """From the head to the first that is not expired."""
    cache = w.variants[v]
    while cache["head"] >= 0:
        x = cache["head"]
        visit(w, v, ONE)
        if w.entries[x]["ts"] >= threshold:
            break
        if extends(w, v, x):
            extend(w, v, x, stamp)
        else:
            remove(w, o, v, x, TIME)


@compiled
def size_stash(w: World, o: Out, v: int, need: int, now: int) -> None:
    """The stash, then the queue; wanted entries that are not too old are set aside."""
    cache = w.variants[v]
    oldest = earlier(now, cache["ttl_max_ns"])
    freed = ZERO
    # in the stash they are in the order of their timestamps
    while freed < need and cache["stash_head"] >= 0:
        x = cache["stash_head"]
        if w.entries[x]["ts"] >= oldest:
            break
        visit(w, v, ONE)
        freed += remove(w, o, v, x, SIZE)
    if freed < need:
        freed += size_unwanted(w, o, v, need - freed)
    while freed < need and cache["head"] >= 0:
        x = cache["head"]
        e = w.entries[x]
        visit(w, v, ONE)
        if e["expected"] <= 0 or e["ts"] < oldest:
            freed += remove(w, o, v, x, SIZE)
        else:
            set_aside(w, v, x)


@compiled
def size_unwanted(w: World, o: Out, v: int, need: int) -> Int:
    """Remove unwanted entries of a stash whose entries are young; counts as visited what a walk
    through the stash would visit.
    """
    cache = w.variants[v]
    freed, place, met = ZERO, ZERO, cache["aside"]
    while freed < need and cache["unwanted_head"] >= 0:
        x = cache["unwanted_head"]
        place = w.entries[x]["place"]
        freed += remove(w, o, v, x, SIZE)
    if freed >= need:
        met -= cache["aside"]
        x = cache["stash_head"]
        while x >= 0 and w.entries[x]["place"] < place:
            met += ONE
            x = w.entries[x]["next"]
    visit(w, v, met)
    return freed


@compiled
def time_stash(w: World, o: Out, v: int, threshold: int, now: int) -> None:
    """The stash, then the queue, up to the first entry that stops the pass."""
    cache = w.variants[v]
    pending, oldest = cache["pending"], earlier(now, cache["ttl_max_ns"])
    x, in_stash = cache["stash_head"], True
    if (
        x >= 0
        and pending == PENDING_STASH
        and cache["unwanted_head"] < 0
        and (w.entries[x]["ts"] >= oldest and w.entries[cache["stash_tail"]]["ts"] < threshold)
    ):
        visit(w, v, cache["aside"])
        x = NOBODY
    while True:
        if x < 0:
            if not in_stash:
                break
            x, in_stash = cache["head"], False
            continue
        e = w.entries[x]
        after, wanted = e["next"], e["expected"] > 0
        visit(w, v, ONE)
        if wanted and pending == PENDING_STOP:
            if e["ts"] >= oldest:
                break
            remove(w, o, v, x, TIME)
        elif e["ts"] >= threshold:
            break
        elif wanted and pending == PENDING_STASH and e["ts"] >= oldest:
            if not in_stash:
                set_aside(w, v, x)
        else:
            remove(w, o, v, x, TIME)
        x = after


@compiled
def size_proportional(w: World, o: Out, v: int, need: int) -> None:
    """The largest topics that together have half of the bytes, each in proportion to its size."""
    cache = w.variants[v]
    n = cache["topics"]
    half = np.int64(cache["used"] * HALF)
    for i in range(n):
        w.scratch[i] = w.heads[v, i]
    heap_up(w, n, ONE)
    left, total = n, ZERO
    while left > 0 and (left == n or total < half):
        total += w.cells[take_first(w, left, ONE)]["used"]
        left -= ONE
    if total == 0:
        return
    for back in range(n - left):
        cell = w.scratch[n - ONE - back]
        s = w.sets[cell]
        share = np.int64(need * (w.cells[cell]["used"] / total))
        freed = ZERO
        while freed < share and s["first"] >= 0:
            p = s["first"]
            visit(w, v, ONE)
            freed += remove(w, o, v, w.slots[p, lowest(w.pages[p]["bits"])], SIZE)


@compiled
def time_proportional(w: World, o: Out, v: int, threshold: int) -> None:
    """Every topic from its lowest position to the first that is not expired."""
    n = cells_before(w, v, threshold)
    heap_up(w, n, ZERO)
    while n > 0:
        cell = take_first(w, n, ZERO)
        n -= ONE
        s = w.sets[cell]
        while s["first"] >= 0 and ts_of_lowest(w, cell) < threshold:
            p = s["first"]
            visit(w, v, ONE)
            remove(w, o, v, w.slots[p, lowest(w.pages[p]["bits"])], TIME)
    # one that is not expired in every topic that has entries left
    visit(w, v, w.variants[v]["topics"])


@compiled
def size_belady(w: World, o: Out, v: int, need: int) -> None:
    """The entries that are read last, or never."""
    freed = ZERO
    while freed < need and w.variants[v]["count"] > 0:
        visit(w, v, ONE)
        freed += remove(w, o, v, w.far[v, 0], SIZE)


# -- what is due every interval --------------------------------------------------------------


@compiled
def change_due(w: World, v: int, now: int) -> Int:
    """When a pass could first change a cache that the pass at `now` left unchanged."""
    cache = w.variants[v]
    ttl, ttl_max = cache["ttl_ns"], cache["ttl_max_ns"]
    if cache["policy"] == BELADY:
        return LARGEST
    if cache["policy"] == PROPORTIONAL:
        return later(ts_of_lowest(w, w.heads[v, 0]), ttl)
    if cache["policy"] != STASHING:
        return later(w.entries[cache["head"]]["ts"], ttl)
    x, in_stash = cache["stash_head"], True
    if x < 0:
        x, in_stash = cache["head"], False
    soonest = soonest_of(
        LARGEST, later(w.entries[x]["ts"], ttl), later(w.entries[x]["ts"], ttl_max), now
    )
    if cache["pending"] != PENDING_STASH or later(w.entries[x]["ts"], ttl) >= now:
        return soonest
    # the pass went on behind the first, to one that is not expired
    met = ZERO
    while True:
        if x < 0:
            if not in_stash:
                break
            x, in_stash = cache["head"], False
            continue
        ts = w.entries[x]["ts"]
        soonest = soonest_of(soonest, later(ts, ttl), later(ts, ttl_max), now)
        if met > 0 and later(ts, ttl) >= now and later(ts, ttl_max) >= now:
            break
        met += ONE
        x = w.entries[x]["next"]
        if in_stash and later(w.entries[cache["stash_tail"]]["ts"], ttl) < now:
            # the rest of the stash is like its first
            x = NOBODY
    return soonest


@compiled
def soonest_of(soonest: int, a: int, b: int, now: int) -> Int:
    """The earliest of three times; the second and third count only from now on."""
    if a >= now:
        soonest = min(soonest, a)
    if b >= now:
        soonest = min(soonest, b)
    return soonest


@compiled
def periodic_pass(w: World, o: Out, v: int, due: int) -> None:
    """Run a pass a moment after it is due; extended entries get the time at which it was due.

    If it changes nothing, neither do the following ones until something changes: their visits are
    recorded.
    """
    cache = w.variants[v]
    now = due + ONE
    visited, passes = cache["entries_visited"], cache["passes_size"]
    count, aside, tail = cache["count"], cache["aside"], cache["tail"]
    cache["idle_until_ns"] = ZERO
    time_pass(w, o, v, earlier(now, cache["ttl_ns"]), now, due)
    check_size(w, o, v, now, due)
    cache["passed_ns"] = now
    same = cache["count"] == count and cache["aside"] == aside and cache["tail"] == tail
    if not same or count == 0 or (tail >= 0 and w.entries[tail]["ts"] == due):
        cache["idle_until_ns"] = NULL
        return
    cache["idle_until_ns"] = change_due(w, v, now)
    cache["idle_visits"] = cache["entries_visited"] - visited
    cache["idle_passes"] = cache["passes_size"] - passes


@compiled
def skip_idle(w: World, v: int, to: int, edge: int) -> Int:
    """The next due pass that may change something, or that is not before `to` or, run a moment
    later, before `edge`; passes before it are counted.
    """
    cache = w.variants[v]
    due = due_pass(w, v)
    if cache["idle_until_ns"] == NULL:
        return due
    end = min(min(to, cache["idle_until_ns"]), edge - ONE)
    if due >= end:
        return due
    n = (end - due + cache["interval_ns"] - ONE) // cache["interval_ns"]
    visit(w, v, n * cache["idle_visits"])
    cache["passes_size"] += n * cache["idle_passes"]
    cache["passes"] += n * cache["idle_passes"]
    cache["passed_ns"] = due + (n - ONE) * cache["interval_ns"] + ONE
    return due_pass(w, v)


@compiled
def next_effect(w: World) -> Int:
    """The first time at which a pass may change something; the largest time if there is none."""
    soonest = LARGEST
    for v in range(len(w.variants)):
        cache = w.variants[v]
        if cache["count"] == 0:
            continue
        at = cache["passed_ns"]
        if need_of(w, v) == 0:
            # not before something could have expired, whatever protects it then
            at = max(at, first_expiry(w, v))
        soonest = min(soonest, due_from(w, v, at))
    return soonest


@compiled
def first_expiry(w: World, v: int) -> Int:
    """When the first entry of a cache that is not empty expires."""
    cache = w.variants[v]
    ttl = cache["ttl_ns"]
    if cache["policy"] == BELADY:
        return LARGEST
    if cache["policy"] == PROPORTIONAL:
        return later(ts_of_lowest(w, w.heads[v, 0]), ttl)
    x = cache["head"]
    if cache["policy"] == STASHING:
        ttl = min(ttl, cache["ttl_max_ns"])
        if cache["stash_head"] >= 0:
            x = cache["stash_head"]
    return later(w.entries[x]["ts"], ttl)
