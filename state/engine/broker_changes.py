"""Turns: changes that hold for every key of a broker, as the kernels of jobs on wall time read
them.

`state.engine.wall_policies` creates them.
"""

from __future__ import annotations

import numpy as np

from state.engine import wall
from state.engine.kernel import Int, codes, compiled
from state.engine.records import Array

SETTINGS, STARTS, GAPS = codes(3)
"""`start` of a turn: settings of the broker change; it starts; its records up to here were lost."""
LARGEST = np.int64(2**63 - 1)


@compiled
def rank_at(shared_ms: Array, at_ms: Int) -> Int:
    """Number of shared records, given by their times, that are earlier than a time."""
    low, high = np.int64(0), np.int64(len(shared_ms))
    while low < high:
        middle = (low + high) >> 1
        if shared_ms[middle] < at_ms:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def turn_after(turns: Array, turn_start: Array, place: Int, rank: Int) -> Int:
    """The first turn of a broker at or after a rank, never the broker's first turn."""
    low, high = turn_start[place] + 1, turn_start[place + 1]
    while low < high:
        middle = (low + high) >> 1
        if turns[middle]["rank"] < rank:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def comes_late(turns: Array, turn_start: Array, place: Int, turn: Int, kind: Int) -> bool:
    """Whether this call brought a start, or a gap, that is newer than those that a key has had and
    lies behind the key, whose next turn is given.
    """
    newest, found = np.int64(0), False
    for at in range(turn - 1, turn_start[place], -1):
        t = turns[at]
        if t["start"] == kind and t["fresh"] == 0:
            return bool(found and newest > t["at_ms"])
        if t["start"] == kind:
            newest, found = max(newest, t["at_ms"]) if found else t["at_ms"], True
    return found


@compiled
def until(at_ms: Int, life_ms: Int) -> Int:
    """A time plus a duration, at most the largest time."""
    if at_ms > 0 and life_ms > LARGEST - at_ms:
        return LARGEST
    return at_ms + life_ms


def places(cluster: Array, broker: Array) -> tuple[Array, Array]:
    """Clusters and brokers, and the index of each pair."""
    n = len(cluster)
    known, place = np.zeros((n, 3), np.int64), np.empty(n, np.int64)
    count = wall.intern_tuples(
        known,
        0,
        np.ascontiguousarray(cluster),
        np.ascontiguousarray(broker),
        np.zeros(n, np.int64),
        np.ones(n, bool),
        place,
    )
    return known[:count], place
