"""Heaps of one cache: cells by the age of their lowest position, entries by their next read."""

from __future__ import annotations

from state.entry_cache.layout import NOBODY, ONE, ZERO, Int, World, compiled
from state.entry_cache.positions import lowest

TWO = ONE + ONE

# -- cells (`proportional`): the one whose lowest position has the oldest timestamp is first ---


@compiled
def ts_of_lowest(w: World, cell: int) -> Int:
    """Timestamp of the lowest position of a cell that has entries."""
    p = w.sets[cell]["first"]
    return w.entries[w.slots[p, lowest(w.pages[p]["bits"])]]["ts"]


@compiled
def put_head(w: World, v: int, i: int, cell: int) -> None:
    """Put a cell at a place of the heap."""
    w.heads[v, i] = cell
    w.cells[cell]["head_at"] = i


@compiled
def settle_head(w: World, v: int, cell: int) -> None:
    """Restore the heap after the lowest position of a cell has changed, or its first or last entry
    has come or gone.
    """
    # the number of cells in the heap: those with entries, less this one if it is new in it
    heads = w.heads[v]
    n = w.variants[v]["topics"]
    i = w.cells[cell]["head_at"]
    if w.sets[cell]["first"] < 0:
        w.cells[cell]["head_at"] = NOBODY
        if i == n:
            return
        cell = heads[n]
    elif i < 0:
        i = n - ONE
    ts = ts_of_lowest(w, cell)
    while i > 0:
        parent = (i - ONE) // TWO
        if ts_of_lowest(w, heads[parent]) <= ts:
            break
        put_head(w, v, i, heads[parent])
        i = parent
    while TWO * i + ONE < n:
        child = TWO * i + ONE
        if child + ONE < n and (
            ts_of_lowest(w, heads[child + ONE]) < ts_of_lowest(w, heads[child])
        ):
            child += ONE
        if ts_of_lowest(w, heads[child]) >= ts:
            break
        put_head(w, v, i, heads[child])
        i = child
    put_head(w, v, i, cell)


@compiled
def cells_before(w: World, v: int, threshold: int) -> Int:
    """Collect the cells whose lowest position is older than a threshold; returns how many."""
    n = w.variants[v]["topics"]
    heads = w.heads[v]
    if n == 0 or ts_of_lowest(w, heads[0]) >= threshold:
        return ZERO
    found, done = ONE, ZERO
    w.scratch[0] = 0
    while done < found:
        first_child = TWO * w.scratch[done] + ONE
        for i in range(first_child, min(first_child + TWO, n)):
            if ts_of_lowest(w, heads[i]) < threshold:
                w.scratch[found] = i
                found += ONE
        done += ONE
    for i in range(found):
        w.scratch[i] = heads[w.scratch[i]]
    return found


# -- sorting the collected cells -------------------------------------------------------------


@compiled
def comes_first(w: World, a: int, b: int, by_size: int) -> bool:
    """Order of cells: by bytes, most first, then by name; or by name alone."""
    if by_size != 0 and w.cells[a]["used"] != w.cells[b]["used"]:
        return w.cells[a]["used"] > w.cells[b]["used"]
    count = len(w.variants)
    return w.topics[a // count]["rank"] < w.topics[b // count]["rank"]


@compiled
def sink(w: World, i: Int, n: int, by_size: int) -> None:
    """Restore the heap of the first n collected cells below a place."""
    cells = w.scratch
    cell = cells[i]
    while TWO * i + ONE < n:
        child = TWO * i + ONE
        if child + ONE < n and comes_first(w, cells[child + ONE], cells[child], by_size):
            child += ONE
        if not comes_first(w, cells[child], cell, by_size):
            break
        cells[i] = cells[child]
        i = child
    cells[i] = cell


@compiled
def heap_up(w: World, n: Int, by_size: int) -> None:
    """Make the first n collected cells a heap, the first in order on top."""
    i = n // TWO - ONE
    while i >= 0:
        sink(w, i, n, by_size)
        i -= ONE


@compiled
def take_first(w: World, n: int, by_size: int) -> Int:
    """Take the top off a heap of n collected cells; it is then behind the others."""
    cell = w.scratch[0]
    w.scratch[0] = w.scratch[n - ONE]
    w.scratch[n - ONE] = cell
    sink(w, ZERO, n - ONE, by_size)
    return cell


# -- entries (`belady`): the one whose next read is farthest is first, of those the oldest -----


@compiled
def is_farther(w: World, a: int, b: int) -> bool:
    """Whether an entry is evicted before another."""
    e, other = w.entries[a], w.entries[b]
    if e["expected"] != other["expected"]:
        return e["expected"] > other["expected"]
    return e["ts"] < other["ts"]


@compiled
def sift_far(w: World, v: int, i: Int, x: int, n: int) -> None:
    """Put an entry at a place of the heap of n and move it to where it belongs."""
    far = w.far[v]
    while i > 0:
        parent = (i - ONE) // TWO
        if not is_farther(w, x, far[parent]):
            break
        far[i] = far[parent]
        w.entries[far[i]]["next"] = i
        i = parent
    while TWO * i + ONE < n:
        child = TWO * i + ONE
        if child + ONE < n and is_farther(w, far[child + ONE], far[child]):
            child += ONE
        if not is_farther(w, far[child], x):
            break
        far[i] = far[child]
        w.entries[far[i]]["next"] = i
        i = child
    far[i] = x
    w.entries[x]["next"] = i


@compiled
def put_far(w: World, v: int, x: int) -> None:
    """Add a new entry, which the cache already counts."""
    n = w.variants[v]["count"]
    sift_far(w, v, n - ONE, x, n)


@compiled
def settle_far(w: World, v: int, x: int) -> None:
    """Restore the heap after the next read of an entry has changed."""
    sift_far(w, v, w.entries[x]["next"], x, w.variants[v]["count"])


@compiled
def drop_far(w: World, v: int, x: int) -> None:
    """Remove an entry, which the cache still counts."""
    n = w.variants[v]["count"] - ONE
    i = w.entries[x]["next"]
    last = w.far[v, n]
    if last != x:
        sift_far(w, v, i, last, n)
