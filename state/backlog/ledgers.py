"""Ledgers of a topic: the entries stored after a position, and their estimated size.

Sums that exceed 64 bits are the largest 64-bit number.
"""

from __future__ import annotations

import numpy as np

from state.backlog.layout import (
    AT,
    BYTES,
    CLOSE,
    ENTRIES,
    ID,
    LARGEST,
    LEDGERS,
    NOBODY,
    NULL,
    REST_BYTES,
    REST_ENTRIES,
    USED,
    Int,
    Store,
    compiled,
)
from state.backlog.pool import insert, lower, remove


@compiled
def plus(a: Int, b: Int) -> Int:
    """The sum of two numbers that are not negative, at most LARGEST."""
    return a + b if b <= LARGEST - a else LARGEST


@compiled
def up(entry: Int) -> Int:
    """One more, at most LARGEST."""
    return entry + 1 if entry < LARGEST else LARGEST


@compiled
def find(w: Store, key: Int, ledger: Int) -> Int:
    """Place of a ledger, -1 if it is not known."""
    span = w.spans[LEDGERS, key]
    at = lower(w.ledgers, span, ledger, NULL)
    if at < span[AT] + span[USED] and w.ledgers[at, ID] == ledger:
        return at
    return NOBODY


@compiled
def newest(w: Store, key: Int) -> Int:
    """Place of the highest ledger, -1 without."""
    span = w.spans[LEDGERS, key]
    return span[AT] + span[USED] - 1 if span[USED] > 0 else NOBODY


@compiled
def is_open(w: Store, key: Int, at: Int) -> bool:
    """Whether the ledger at a place is the open one."""
    return bool(at == newest(w, key) and w.ledgers[at, CLOSE] == NULL)


@compiled
def state(w: Store, key: Int, ledger: Int, entries: Int, size: Int, close_ms: Int) -> Int:
    """Apply a `ledger_state`; returns the close time that is known then."""
    at = find(w, key, ledger)
    if at < 0:
        at = _put(w, key, ledger)
    w.ledgers[at, ENTRIES], w.ledgers[at, BYTES] = entries, size
    if at == newest(w, key):
        w.keys[key].behind = 0
    if close_ms != NULL:
        w.ledgers[at, CLOSE] = close_ms
    w.links[key].summed = 0
    w.keys[key].has_state = 1
    return w.ledgers[at, CLOSE]


@compiled
def _put(w: Store, key: Int, ledger: Int) -> Int:
    span = w.spans[LEDGERS, key]
    at = insert(w.ledgers, span, w.tops, LEDGERS, lower(w.ledgers, span, ledger, NULL))
    w.ledgers[at, ID], w.ledgers[at, ENTRIES], w.ledgers[at, BYTES] = ledger, 0, 0
    w.ledgers[at, CLOSE] = NULL
    return at


@compiled
def add(w: Store, key: Int, ledger: Int, entry: Int, size: Int) -> bool:
    """Count an entry in the open ledger, or open a newer ledger with it. Records of several
    producers come a little out of order: an entry may be behind a later one. Returns whether its
    ledger is known.
    """
    last = newest(w, key)
    if last < 0 or ledger > w.ledgers[last, ID]:
        last = _put(w, key, ledger)
        w.links[key].summed = w.keys[key].behind = 0
    if w.ledgers[last, ID] != ledger:
        return bool(find(w, key, ledger) >= 0)
    known, k = w.ledgers[last, ENTRIES], w.keys[key]
    if w.ledgers[last, CLOSE] == NULL and (entry >= known or k.behind > 0):
        k.behind += entry - known if entry >= known else -1
        w.ledgers[last, ENTRIES] = max(known, up(entry))
        w.ledgers[last, BYTES] = plus(w.ledgers[last, BYTES], size)
        w.links[key].summed = 0
    return True


@compiled
def delete(w: Store, key: Int, ledger: Int) -> None:
    """Remove a trimmed ledger."""
    k, span, at = w.keys[key], w.spans[LEDGERS, key], find(w, key, ledger)
    if at < 0:
        return
    k.deleted = plus(k.deleted, w.ledgers[at, ENTRIES])
    remove(w.ledgers, span, at)
    w.links[key].summed = 0
    if span[USED] == 0:
        k.has_state = 0


@compiled
def sum_up(w: Store, key: Int) -> None:
    """Bring the sums of later ledgers up to date."""
    if w.links[key].summed != 0:
        return
    span = w.spans[LEDGERS, key]
    entries, size = np.int64(0), np.int64(0)
    for at in range(span[AT] + span[USED] - 1, span[AT] - 1, -1):
        w.ledgers[at, REST_ENTRIES], w.ledgers[at, REST_BYTES] = entries, size
        entries = plus(entries, w.ledgers[at, ENTRIES])
        size = plus(size, w.ledgers[at, BYTES])
    w.links[key].summed = 1


@compiled
def total_entries(w: Store, key: Int) -> Int:
    """Entries of all ledgers; their sums are up to date."""
    span = w.spans[LEDGERS, key]
    if span[USED] == 0:
        return np.int64(0)
    return plus(w.ledgers[span[AT], ENTRIES], w.ledgers[span[AT], REST_ENTRIES])


@compiled
def entries_after(w: Store, key: Int, ledger: Int, entry: Int) -> Int:
    """How many entries follow a position; sums are up to date."""
    span = w.spans[LEDGERS, key]
    at = lower(w.ledgers, span, ledger, NULL)
    if at == span[AT] + span[USED]:
        return np.int64(0)
    rest, entries = w.ledgers[at, REST_ENTRIES], w.ledgers[at, ENTRIES]
    if w.ledgers[at, ID] != ledger:
        return plus(rest, entries)
    return plus(rest, entries - entry - 1) if entry < entries else rest


@compiled
def first_after(w: Store, key: Int, ledger: Int, entry: Int) -> tuple[Int, Int]:
    """Place of the ledger of the first entry that follows a position, and the entry; -1 without."""
    span = w.spans[LEDGERS, key]
    at, end = lower(w.ledgers, span, ledger, NULL), span[AT] + span[USED]
    if at < end and w.ledgers[at, ID] == ledger:
        if entry < w.ledgers[at, ENTRIES] - 1:
            return at, entry + 1
        at += 1
    while at < end:
        if w.ledgers[at, ENTRIES] > 0:
            return at, np.int64(0)
        at += 1
    return NOBODY, np.int64(0)


@compiled
def follow(w: Store, key: Int, ledger: Int, entry: Int) -> tuple[Int, Int]:
    """The next position, whether or not its entry is known to exist."""
    span = w.spans[LEDGERS, key]
    at, end = lower(w.ledgers, span, ledger, NULL), span[AT] + span[USED]
    if at < end and w.ledgers[at, ID] == ledger:
        if is_open(w, key, at) or entry < w.ledgers[at, ENTRIES] - 1:
            return ledger, up(entry)
        at += 1
    while at < end:
        if w.ledgers[at, ENTRIES] > 0 or is_open(w, key, at):
            return w.ledgers[at, ID], np.int64(0)
        at += 1
    return ledger, up(entry)


@compiled
def forward(w: Store, key: Int, ledger: Int, entry: Int, count: Int) -> tuple[Int, Int]:
    """The position `count` existing entries further, at most the last one."""
    while count > 0:
        at, first = first_after(w, key, ledger, entry)
        if at < 0:
            break
        step = min(count, w.ledgers[at, ENTRIES] - first)
        ledger, entry = w.ledgers[at, ID], first + step - 1
        count -= step
    return ledger, entry


@compiled
def bytes_after(w: Store, key: Int, ledger: Int, entry: Int) -> Int:
    """Size of the backlog after a mark-delete, estimated; sums are up to date."""
    at, _ = first_after(w, key, ledger, entry)
    if at < 0:
        return np.int64(0)
    if w.settings[0].ledger_sum != 0:
        return plus(w.ledgers[at, REST_BYTES], w.ledgers[at, BYTES])
    span = w.spans[LEDGERS, key]
    at = lower(w.ledgers, span, ledger, NULL)
    rest, size, entries = w.ledgers[at, REST_BYTES], w.ledgers[at, BYTES], w.ledgers[at, ENTRIES]
    if w.ledgers[at, ID] != ledger or entries == 0:
        return plus(rest, size)
    if entry >= entries:
        return rest
    return plus(rest, size - (entry + 1) * (size // entries))


@compiled
def closed_at(w: Store, at: Int) -> Int:
    """Close time of the ledger at a place; NULL where it is open or its time is not known."""
    close_ms = w.ledgers[at, CLOSE]
    return close_ms if close_ms > 0 else NULL


@compiled
def close_of_oldest(w: Store, key: Int, ledger: Int, entry: Int) -> Int:
    """Close time of the ledger with the first entry after a mark-delete, if known."""
    at = find(w, key, ledger)
    if at >= 0 and is_open(w, key, at):
        return NULL
    if at < 0 or entry >= w.ledgers[at, ENTRIES] - 1:
        at, _ = first_after(w, key, ledger, entry)
        if at < 0:
            return NULL
    return closed_at(w, at)
