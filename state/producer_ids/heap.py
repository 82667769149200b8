"""Blocks of the flat arrays: words of filters, samples of rates.

Free blocks of a class form a list that is linked through the blocks themselves. The caller ensures
that the arrays have room for one more block.
"""

from __future__ import annotations

import numpy as np

from state.producer_ids.layout import Int, World, compiled

WORDS, SAMPLES = np.int64(0), np.int64(1)


@compiled
def class_for(size: Int) -> Int:
    """The class whose blocks have at least this many elements."""
    found, room = np.int64(0), np.int64(1)
    while room < size:
        found, room = found + 1, room * 2
    return found


@compiled
def class_of(room: Int) -> Int:
    """The largest class that a block of this many elements serves."""
    found = np.int64(0)
    while room > 1:
        found, room = found + 1, room >> 1
    return found


@compiled
def claim_words(w: World, kind: Int, size: Int) -> Int:
    """Where a block of words of a class begins; its content is anything."""
    p = w.settings[0]
    at = w.free[WORDS, kind]
    if at >= 0:
        w.free[WORDS, kind] = np.int64(w.words[at]) - 1
        return at
    at = p["words"]
    p["words"] += size
    return at


@compiled
def release_words(w: World, kind: Int, at: Int) -> None:
    """Give a block of words back."""
    w.words[at] = np.uint64(w.free[WORDS, kind] + 1)
    w.free[WORDS, kind] = at


@compiled
def more_samples(w: World, key: Int) -> None:
    """Move the samples of a key to a block of twice the room."""
    p, k, e = w.settings[0], w.keys[key], w.links[key]
    kind = class_for(k.used + 1)
    at = w.free[SAMPLES, kind]
    if at >= 0:
        w.free[SAMPLES, kind] = w.sample_start[at]
    else:
        at = p["samples"]
        p["samples"] += np.int64(1) << kind
    for i in range(k.used):
        w.sample_start[at + i] = w.sample_start[e.sample_at + i]
        w.sample_last[at + i] = w.sample_last[e.sample_at + i]
        w.sample_total[at + i] = w.sample_total[e.sample_at + i]
    if e.sample_room > 0:
        old = class_of(e.sample_room)
        w.sample_start[e.sample_at] = w.free[SAMPLES, old]
        w.free[SAMPLES, old] = e.sample_at
    e.sample_at, e.sample_room = at, np.int64(1) << kind
