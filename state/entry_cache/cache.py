"""Entries of a cache: finding, inserting, reading, counting, moving and removing them.

A cell is a topic in one cache. The times in the rows of a removal are in the key (`now_…`), set by
the caller.
"""

from __future__ import annotations

import numpy as np

from state.entry_cache.heaps import drop_far, put_far, settle_far, settle_head
from state.entry_cache.layout import (
    BELADY,
    BLOCK_MASK,
    BLOCK_SHIFT,
    EXPECTED,
    EXTENDED_OUT,
    INVALIDATED,
    LARGEST,
    LRU,
    NEVER_WANTED,
    NOBODY,
    NULL,
    ONE,
    PLAIN,
    PROPORTIONAL,
    SIZE,
    STASHING,
    SUFFIX_COUNT,
    TIME,
    UNREAD,
    ZERO,
    Int,
    Out,
    Position,
    Record,
    World,
    compiled,
)
from state.entry_cache.positions import add, discard, entry_at, first_from, has, lowest, precedes


@compiled
def find(w: World, cell: int, ledger: int, entry: int) -> Int:
    """The entry of a position, -1 if it is not cached."""
    p = has(w, w.sets[cell], cell, ledger, entry)
    if p < 0:
        return NOBODY
    return w.slots[p, entry & BLOCK_MASK]


# -- queues ----------------------------------------------------------------------------------


@compiled
def append(w: World, v: int, x: int) -> None:
    """Append an entry to the queue."""
    cache, e = w.variants[v], w.entries[x]
    tail = cache["tail"]
    e["previous"], e["next"], e["aside"] = tail, NOBODY, 0
    if tail >= 0:
        w.entries[tail]["next"] = x
    else:
        cache["head"] = x
    cache["tail"] = x


@compiled
def unlink(w: World, v: int, x: int) -> None:
    """Remove an entry from the queue or the stash."""
    cache, e = w.variants[v], w.entries[x]
    before, after = e["previous"], e["next"]
    aside = e["aside"] != 0
    if before >= 0:
        w.entries[before]["next"] = after
    elif aside:
        cache["stash_head"] = after
    else:
        cache["head"] = after
    if after >= 0:
        w.entries[after]["previous"] = before
    elif aside:
        cache["stash_tail"] = before
    else:
        cache["tail"] = before
    if aside:
        cache["aside"] -= 1
        if e["expected"] <= 0:
            is_wanted_again(w, v, x)


@compiled
def stash(w: World, v: int, x: int) -> None:
    """Append an entry to the stash."""
    cache, e = w.variants[v], w.entries[x]
    tail = cache["stash_tail"]
    e["previous"], e["next"], e["aside"], e["place"] = tail, NOBODY, 1, 0
    if tail >= 0:
        w.entries[tail]["next"] = x
        e["place"] = w.entries[tail]["place"] + 1
    else:
        cache["stash_head"] = x
    cache["stash_tail"] = x
    cache["aside"] += 1
    if e["expected"] <= 0:
        is_unwanted(w, v, x)


@compiled
def is_unwanted(w: World, v: int, x: int) -> None:
    """An entry of the stash no longer expects a read; such entries are listed in the stash's order."""
    cache, e = w.variants[v], w.entries[x]
    before, after = cache["unwanted_tail"], NOBODY
    while before >= 0 and w.entries[before]["place"] > e["place"]:
        after = before
        before = w.entries[before]["unwanted_previous"]
    e["unwanted_previous"], e["unwanted_next"] = before, after
    if before >= 0:
        w.entries[before]["unwanted_next"] = x
    else:
        cache["unwanted_head"] = x
    if after >= 0:
        w.entries[after]["unwanted_previous"] = x
    else:
        cache["unwanted_tail"] = x


@compiled
def is_wanted_again(w: World, v: int, x: int) -> None:
    """An entry of the stash leaves it, or expects a read again."""
    cache, e = w.variants[v], w.entries[x]
    before, after = e["unwanted_previous"], e["unwanted_next"]
    if before >= 0:
        w.entries[before]["unwanted_next"] = after
    else:
        cache["unwanted_head"] = after
    if after >= 0:
        w.entries[after]["unwanted_previous"] = before
    else:
        cache["unwanted_tail"] = before


@compiled
def set_aside(w: World, v: int, x: int) -> None:
    """Move an entry that expects reads from the queue to the end of the stash."""
    unlink(w, v, x)
    stash(w, v, x)
    e = w.entries[x]
    w.cells[w.pages[e["page"]]["owner"]]["stashed"] += 1


@compiled
def extends(w: World, v: int, x: int) -> bool:
    """Whether an entry gets another time to live instead of being removed."""
    cache, e = w.variants[v], w.entries[x]
    if cache["policy"] != EXPECTED:
        return False
    return (cache["extend_recent"] != 0 and e["accessed"] != 0) or (
        e["counted"] != 0 and e["expected"] > 0 and e["requeue_count"] < cache["max_requeue"]
    )


@compiled
def extend(w: World, v: int, x: int, stamp: int) -> None:
    """Move an entry back to the tail with a new timestamp."""
    unlink(w, v, x)
    append(w, v, x)
    e = w.entries[x]
    e["ts"], e["accessed"] = stamp, 0
    e["requeue_count"] += 1
    w.cells[w.pages[e["page"]]["owner"]]["extended"] += 1


# -- counters --------------------------------------------------------------------------------


@compiled
def change(w: World, v: int, x: int, by: int) -> None:
    """Change the number of expected reads by one; no effect without a counter."""
    e = w.entries[x]
    if e["counted"] == 0:
        return
    was = e["expected"] > 0
    e["expected"] += by
    wanted = e["expected"] > 0
    if was == wanted:
        return
    cache, c = w.variants[v], w.cells[w.pages[e["page"]]["owner"]]
    sign = ONE if wanted else -ONE
    c["wanted"] += sign * e["bytes"]
    cache["wanted"] += sign * e["bytes"]
    cache["most_wanted"] = max(cache["most_wanted"], cache["wanted"])
    cache["idle_until_ns"] = NULL
    if e["aside"] == 0:
        return
    if wanted:
        is_wanted_again(w, v, x)
    else:
        is_unwanted(w, v, x)


@compiled
def merge(w: World, v: int, x: int, n: int) -> None:
    """A second insertion of a position adds the reads it expects."""
    e = w.entries[x]
    if e["counted"] == 0:
        e["counted"], e["expected"] = 1, 0
        c = w.cells[w.pages[e["page"]]["owner"]]
        c["bare"] -= e["bytes"]
    change(w, v, x, n)


@compiled
def due_pass(w: World, v: int) -> Int:
    """When the next pass is due."""
    return due_from(w, v, w.variants[v]["passed_ns"])


@compiled
def due_from(w: World, v: int, at: int) -> Int:
    """The first pass at or after a time: start + k * interval, k at least 1."""
    interval, started = w.variants[v]["interval_ns"], w.key[0]["started_ns"]
    if at == LARGEST:
        return LARGEST
    k = max((at - started - ONE) // interval + ONE, ONE)
    if started > 0 and k > (LARGEST - started) // interval:
        return LARGEST
    return started + k * interval


# -- in and out ------------------------------------------------------------------------------


@compiled
def insert(
    w: World, v: int, cell: int, ledger: int, entry: int, size: int, n: int, next_read: int
) -> bool:
    """Insert an entry that expects n reads. False if the position is cached already, whose count
    may increase. The caller has made room and checks the size.
    """
    cache = w.variants[v]
    policy = cache["policy"]
    counts = n > 0 and (policy == EXPECTED or policy == STASHING)
    p, i, is_new = add(w, w.sets[cell], cell, ledger, entry)
    if not is_new:
        if cache["merge"] != 0 and counts:
            merge(w, v, w.slots[p, i], n)
        return False
    k = w.key[0]
    cache["filled"] = 1
    x = k["free_entry"]
    if x >= 0:
        k["free_entry"] = w.entries[x]["next"]
    else:
        x = k["entries_top"]
        k["entries_top"] += 1
    k["entries"] += 1
    w.slots[p, i] = x
    now = k["now_ns"]
    e, c = w.entries[x], w.cells[cell]
    e["ts"], e["inserted_ns"], e["bytes"], e["page"], e["slot"] = now, now, size, p, i
    e["requeue_count"], e["accessed"], e["aside"] = 0, 0, 0
    e["counted"], e["expected"] = 0, 0
    if counts:
        e["counted"], e["expected"] = 1, n
        c["wanted"] += size
        cache["wanted"] += size
        cache["most_wanted"] = max(cache["most_wanted"], cache["wanted"])
    else:
        c["bare"] += size
    if c["count"] == 0:
        cache["topics"] += 1
    if cache["count"] == 0:
        cache["passed_ns"] = max(cache["passed_ns"], now)
        k["next_ns"] = min(k["next_ns"], due_pass(w, v))
    c["count"] += 1
    c["used"] += size
    c["inserted"] += 1
    c["held"] = 1
    k["touched"] = 1
    cache["count"] += 1
    cache["used"] += size
    cache["max_used"] = max(cache["max_used"], cache["used"])
    cache["most_used"] = max(cache["most_used"], cache["used"])
    cache["idle_until_ns"] = NULL
    if policy == BELADY:
        e["expected"], e["ts"] = next_read, cache["number"]
        cache["number"] += 1
        put_far(w, v, x)
        return True
    append(w, v, x)
    if policy == PROPORTIONAL and is_lowest(w, cell, p, i):
        settle_head(w, v, cell)
    return True


@compiled
def is_lowest(w: World, cell: int, p: int, i: int) -> bool:
    """Whether a place in a page is the lowest position of a cell."""
    return w.sets[cell]["first"] == p and w.pages[p]["bits"] & ((ONE << i) - ONE) == 0


@compiled
def hit(w: World, v: int, x: int, next_read: int) -> None:
    """A read that found its entry."""
    cache, e = w.variants[v], w.entries[x]
    e["accessed"] = 1
    if cache["policy"] == LRU:
        unlink(w, v, x)
        append(w, v, x)
        e["ts"] = w.key[0]["now_ns"]
        cache["idle_until_ns"] = NULL
    elif cache["policy"] == BELADY:
        e["expected"] = next_read
        settle_far(w, v, x)


@compiled
def suffix_of(w: World, v: int, e: Record) -> Int:
    """The special circumstance of a removal, as the suffix of its rule."""
    cache = w.variants[v]
    if e["counted"] != 0:
        if e["expected"] <= 0:
            return PLAIN
        if cache["policy"] != EXPECTED or cache["max_requeue"] == 0:
            return UNREAD
        return EXTENDED_OUT if e["requeue_count"] >= cache["max_requeue"] else PLAIN
    if e["accessed"] == 0 and e["requeue_count"] == 0:
        return NEVER_WANTED
    return PLAIN


@compiled
def write_eviction(w: World, o: Out, v: int, x: int, cause: int) -> None:
    """A row of cache_evictions."""
    k, e, cache = w.key[0], w.entries[x], w.variants[v]
    now = k["now_ns"]
    k["eviction_no"] = k["eviction_no"] + 1 if k["eviction_ns"] == now else ZERO
    k["eviction_ns"] = now
    page = w.pages[e["page"]]
    row = o.evictions[k["evictions"]]
    k["evictions"] += 1
    row["ts_mono_ns"], row["ts_wall_ms"], row["feed"] = now, k["now_wall_ms"], k["now_feed"]
    row["row_no"] = k["eviction_no"]
    row["variant"], row["policy"], row["max_bytes"] = v, cache["policy"], cache["max_bytes"]
    row["topic"] = w.topics[page["owner"] // len(w.variants)]["name"]
    row["ledger"] = page["ledger"]
    row["entry"] = (page["block"] << BLOCK_SHIFT) + e["slot"]
    row["bytes"], row["cause"] = e["bytes"], cause
    row["rule"] = cause * SUFFIX_COUNT + suffix_of(w, v, e)
    row["expected"], row["counted"] = e["expected"], e["counted"]
    row["requeue_count"], row["accessed"] = e["requeue_count"], e["accessed"]
    row["age_ns"], row["used_before"] = now - e["inserted_ns"], cache["used"]


@compiled
def remove(w: World, o: Out, v: int, x: int, cause: int) -> Int:
    """Remove an entry; returns its bytes. The caller has made room for a row."""
    k, e, cache = w.key[0], w.entries[x], w.variants[v]
    if k["with_evictions"] != 0:
        write_eviction(w, o, v, x, cause)
    p, i, size = e["page"], np.int64(e["slot"]), e["bytes"]
    cell = w.pages[p]["owner"]
    c = w.cells[cell]
    if cause == INVALIDATED:
        c["invalidated"] += 1
    elif cause == TIME:
        c["evicted_time"] += 1
    elif cause == SIZE:
        c["evicted_size"] += 1
    if e["counted"] == 0:
        c["bare"] -= size
    elif e["expected"] > 0:
        c["wanted"] -= size
        cache["wanted"] -= size
        if cause != INVALIDATED:
            c["evicted_wanted"] += 1
            cache["evicted_wanted_bytes"] += size
    if cache["policy"] == BELADY:
        drop_far(w, v, x)
    else:
        unlink(w, v, x)
    c["count"] -= 1
    c["used"] -= size
    cache["count"] -= 1
    cache["used"] -= size
    cache["idle_until_ns"] = NULL
    if c["count"] == 0:
        cache["topics"] -= 1
    was_lowest = cache["policy"] == PROPORTIONAL and is_lowest(w, cell, p, i)
    discard(w, w.sets[cell], p, i)
    if was_lowest:
        settle_head(w, v, cell)
    e["next"] = k["free_entry"]
    k["free_entry"] = x
    k["entries"] -= 1
    return size


# -- explicit removal ------------------------------------------------------------------------


@compiled
def invalidate_before(w: World, o: Out, v: int, cell: int, ledger: int, entry: int) -> None:
    """Remove the entries of a cell before a position."""
    s = w.sets[cell]
    while s["first"] >= 0:
        p = s["first"]
        i = lowest(w.pages[p]["bits"])
        if not precedes(w.pages[p]["ledger"], entry_at(w, p, i), ledger, entry):
            break
        remove(w, o, v, w.slots[p, i], INVALIDATED)


@compiled
def invalidate_all(w: World, o: Out, v: int, cell: int) -> None:
    """Remove all entries of a cell."""
    s = w.sets[cell]
    while s["first"] >= 0:
        p = s["first"]
        remove(w, o, v, w.slots[p, lowest(w.pages[p]["bits"])], INVALIDATED)


@compiled
def invalidate_ledger(w: World, o: Out, v: int, cell: int, ledger: int) -> None:
    """Remove the entries of a ledger."""
    s = w.sets[cell]
    while True:
        p = first_from(w, s, ledger, NULL)
        if p < 0 or w.pages[p]["ledger"] != ledger:
            break
        remove(w, o, v, w.slots[p, lowest(w.pages[p]["bits"])], INVALIDATED)


@compiled
def pass_by(w: World, v: int, cell: int, after: Position, to: Position) -> None:
    """Lower the expected reads of the entries after one position up to another by one."""
    p = first_from(w, w.sets[cell], after.ledger, after.entry >> BLOCK_SHIFT)
    while p >= 0:
        page = w.pages[p]
        bits = page["bits"]
        while bits != 0:
            i = lowest(bits)
            bits &= bits - ONE
            at = entry_at(w, p, i)
            if precedes(to.ledger, to.entry, page["ledger"], at):
                return
            if precedes(after.ledger, after.entry, page["ledger"], at):
                change(w, v, w.slots[p, i], -ONE)
        p = page["next"]
