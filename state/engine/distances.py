"""How far the wall clock of a broker is from its monotonic one, and the records that do not agree.

The clock of a broker is what most of its records say, first record or not: a record whose two times
are further apart than those of the others, by more than `clock_skew_ms`, is refused itself and moves
no clock. A wall clock that was set, or a machine that slept, changes the distance for all records
that follow; the monotonic clock goes on, and they are taken.

Worked example, skew 10 s, distances in s of eight records in order of monotonic time; the broker
stands at 100:

    100 100 7000 100 100 100 100 100     the third is refused
    100 100 7000 7000 7000 7000 ...      from the third on the wall clock was set
"""

from __future__ import annotations

import numpy as np

from state.engine.clocks import NS_PER_MS
from state.engine.kernel import NULL, Array, Record

MOST_VOUCHED = 100
"""Records of a broker that say where it stands, at most: more that agree on another distance than
have vouched for this one say that this one was wrong."""
NEXT = 64
"""Records behind a change that are asked for it."""
LEAST = 3
"""How many of them must agree that the wall clock was set ahead, where others of the batch do with
the distance before."""
_FAR_MS = np.int64(2**61)


def strange(k: Record, run: Array, mono: Array, wall: Array, still: Array, most_ms: int) -> Array:
    """Records, in order, that do not agree with those of their key and run (bool). `still`: those of
    which the wall time may be wrong."""
    found = np.zeros(len(run), bool)
    known = wall != NULL
    apart = _apart(mono, wall)
    if len(run) and run[-1] > 0:
        k["apart_ms"], k["others"], k["vouched"] = NULL, 0, 0
    for one in range(int(run[0]), int(run[-1]) + 1) if len(run) else ():
        mine = np.flatnonzero(known & (run == one))
        if not len(mine):
            continue
        stands = _stands(k) if one == 0 else None
        last = int(mono[mine[0]]) if stands is None or not k["any"] else int(k["last_ns"])
        if stands is None:
            stands = _middle(apart[mine])
        agree = np.abs(apart[mine] - stands) <= most_ms
        if agree.all():
            continue
        before = int(np.count_nonzero(agree))
        for n, i in enumerate(mine.tolist()):
            if not agree[n] and abs(int(apart[i]) - stands) > most_ms:
                goes_on = abs(int(mono[i]) - last) <= most_ms * NS_PER_MS and not still[i]
                near = np.abs(apart[mine[n : n + NEXT]] - apart[i]) <= most_ms
                count = int(np.count_nonzero(near))
                # a wall clock that went back is told from a monotonic one that is ahead by most
                least = min(before, LEAST) if apart[i] > stands else min(before + 1, NEXT)
                most = 2 * count > len(near) and count >= least
                found[i] = not goes_on or not most or agree[n : n + NEXT].any()
                stands = stands if found[i] else int(apart[i])
            if not found[i]:
                last = int(mono[i])
    return found


def change(k: Record, mono: Array, wall: Array, new: Array, most_ms: int) -> bool:
    """Ask the records of a batch, and those that wait (not `new`), where their broker stands: if more
    agree on another distance than on this one, it is theirs. Returns whether the key's clock is
    ahead of them, and was wrong.
    """
    apart = _apart(mono, wall)
    stands, judged, vouched = _stands(k), _judged(k), int(k["vouched"])
    if stands is not None and judged is not None and abs(judged - stands) <= most_ms:
        k["apart_ms"] = NULL
    if stands is None:
        if new.all():
            return False
        stands = _middle(apart[~new])
    agree = np.abs(apart[new] - stands) <= most_ms
    others = apart[new][~agree]
    if not len(others):
        k["others"] = 0
        return False
    middle = _middle(others)
    near = np.abs(others - middle) <= most_ms
    count = int(np.count_nonzero(near))
    if k["others"] and abs(middle - int(k["other_ms"])) <= most_ms:
        count += int(k["others"])
    k["other_ms"], k["others"] = middle, min(count, MOST_VOUCHED)
    if count <= vouched + int(np.count_nonzero(agree)):
        return False
    k["apart_ms"], k["others"], k["vouched"] = middle, 0, 0
    first = int(mono[new][~agree][near].min())
    return bool(k["has_clock"]) and first < int(k["clock_ns"])


def vouch(k: Record, count: int) -> None:
    """So many more records agree with where a broker stands."""
    k["vouched"] = min(int(k["vouched"]) + count, MOST_VOUCHED)


def _stands(k: Record) -> int | None:
    """The distance (ms) of a key: that of its last record, unless newer ones have changed it."""
    if k["apart_ms"] != NULL:
        return int(k["apart_ms"])
    return _judged(k)


def _judged(k: Record) -> int | None:
    if k["any"] and k["last_wall_ms"] != NULL:
        return int(k["last_wall_ms"]) - int(k["last_ns"]) // NS_PER_MS
    return None


def _apart(mono: Array, wall: Array) -> Array:
    return np.asarray(np.clip(wall, -_FAR_MS, _FAR_MS) - mono // NS_PER_MS)


def _middle(apart: Array) -> int:
    return int(np.sort(apart)[len(apart) // 2])
