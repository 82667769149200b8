"""Blocks of sorted rows in the pools: one per key or cursor, found by its span.

A full block moves to the end of its pool; the caller ensures that there is room.
"""

from __future__ import annotations

import numpy as np

from state.backlog.layout import AT, ROOM, USED, Array, Int, compiled

LEAST = np.int64(4)


@compiled
def lower(pool: Array, span: Array, a: Int, b: Int) -> Int:
    """Place in the pool of the first row of a block that is not before (a, b)."""
    low, high = span[AT], span[AT] + span[USED]
    while low < high:
        middle = (low + high) >> 1
        if pool[middle, 0] < a or (pool[middle, 0] == a and pool[middle, 1] < b):
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def insert(pool: Array, span: Array, tops: Array, top: Int, place: Int) -> Int:
    """Free a row of a block at a place; the block may move. Returns the place."""
    used = span[USED]
    if used == span[ROOM]:
        at, room = tops[top], max(2 * used, LEAST)
        for i in range(used):
            for j in range(pool.shape[1]):
                pool[at + i, j] = pool[span[AT] + i, j]
        place += at - span[AT]
        span[AT], span[ROOM] = at, room
        tops[top] = at + room
    for i in range(span[AT] + used, place, -1):
        for j in range(pool.shape[1]):
            pool[i, j] = pool[i - 1, j]
    span[USED] = used + 1
    return place


@compiled
def remove(pool: Array, span: Array, place: Int) -> None:
    """Take the row at a place out of a block."""
    if place == span[AT]:
        drop(span, np.int64(1))
        return
    for i in range(place, span[AT] + span[USED] - 1):
        for j in range(pool.shape[1]):
            pool[i, j] = pool[i + 1, j]
    span[USED] -= 1


@compiled
def drop(span: Array, count: Int) -> None:
    """Take rows away at the front of a block."""
    span[AT] += count
    span[USED] -= count
    span[ROOM] -= count


@compiled
def room_for(rows: Int) -> Int:
    """The most rows of a pool that a new block takes while so many are put into it: it moves each
    time that it is full."""
    return 4 * rows + 8


@compiled
def is_short(pool: Array, span: Array, top: Int) -> bool:
    """Whether one more row of a block may not fit into its pool."""
    return bool(span[USED] == span[ROOM] and top + max(2 * span[USED], LEAST) > len(pool))
