"""Cursors of a topic: positions, acknowledged ranges beyond them, and the slowest cursor."""

from __future__ import annotations

import numpy as np

from state.backlog.layout import (
    AT,
    ENTRIES,
    FIRST,
    ID,
    LAST,
    MOST_RANGES,
    NOBODY,
    NULL,
    RANGES,
    USED,
    Int,
    Record,
    Store,
    compiled,
)
from state.backlog.ledgers import entries_after, find, first_after, follow, up
from state.backlog.pool import drop, insert, lower, remove
from state.engine import tables

ANY, DURABLE = np.int64(0), np.int64(1)


@compiled
def is_before(a: Int, b: Int, c: Int, d: Int) -> bool:
    """Whether the position (a, b) is before (c, d)."""
    return bool(a < c or (a == c and b < d))


# -- names -----------------------------------------------------------------------------------


@compiled
def _is_less(w: Store, a: Int, b: Int) -> bool:
    """Whether one name is before another, byte by byte."""
    i, j = w.text_start[a], w.text_start[b]
    end, other = w.text_start[a + 1], w.text_start[b + 1]
    while i < end and j < other:
        if w.text[i] != w.text[j]:
            return bool(w.text[i] < w.text[j])
        i += 1
        j += 1
    return bool(i == end and j < other)


@compiled
def first_cursor(w: Store, key: Int) -> Int:
    """The first cursor of a key by name, before the others in that order; NOBODY without one."""
    if w.links[key].unsorted != 0:
        _sort(w, key)
    return w.cursors_of.first[key]


@compiled
def _sort(w: Store, key: Int) -> None:
    """Put the cursors of a key in the order of their names (Shell's sort)."""
    count, of = np.int64(0), w.cursors_of
    while of.first[key] >= 0:
        w.order[count] = of.first[key]
        tables.release(of, key, w.order[count])
        count += 1
    gap = count
    while gap > 1:
        gap = max(gap * 5 // 11, np.int64(1))
        for i in range(gap, count):
            moved, k = w.order[i], np.int64(i)
            name = w.cursors.rows[moved].name
            while k >= gap and _is_less(w, name, w.cursors.rows[w.order[k - gap]].name):
                w.order[k] = w.order[k - gap]
                k -= gap
            w.order[k] = moved
    for i in range(count):
        tables.adopt(of, key, w.order[i])
    w.links[key].unsorted = 0


@compiled
def find_cursor(w: Store, key: Int, name: Int) -> Int:
    """A cursor of a key, NOBODY without."""
    return tables.find(w.cursors, (key, name))


@compiled
def create(w: Store, key: Int, name: Int, ledger: Int, entry: Int) -> Int:
    """A new cursor at a position."""
    found = tables.at(w.cursors, (key, name))
    w.cursors.rows[found].ledger, w.cursors.rows[found].entry = ledger, entry
    last, e = w.cursors_of.last[key], w.links[key]
    if last >= 0 and _is_less(w, name, w.cursors.rows[last].name):
        e.unsorted = 1
    tables.adopt(w.cursors_of, key, found)
    e.cursors += 1
    return found


@compiled
def remove_cursor(w: Store, key: Int, cursor: Int) -> None:
    """Remove a cursor, and its ranges."""
    tables.release(w.cursors_of, key, cursor)
    tables.drop(w.cursors, (key, w.cursors.rows[cursor].name))
    w.range_spans[cursor, USED] = 0
    w.links[key].cursors -= 1


@compiled
def forget(w: Store, key: Int, name: Int) -> None:
    """Remove a deleted cursor."""
    cursor = find_cursor(w, key, name)
    if cursor < 0:
        return
    if w.cursors.rows[cursor].durable != 0:
        w.keys[key].version += 1
    remove_cursor(w, key, cursor)


@compiled
def forget_first_times(w: Store, key: Int, ledger: Int) -> None:
    """Forget the times of first entries that are in a ledger or an earlier one."""
    j = first_cursor(w, key)
    while j >= 0:
        if w.cursors.rows[j].ledger <= ledger:
            w.cursors.rows[j].first_ms = NULL
        j = w.cursors_of.following[j]


# -- positions -------------------------------------------------------------------------------


@compiled
def absorbed(w: Store, key: Int, cursor: Int, ledger: Int, entry: Int) -> tuple[Int, Int]:
    """Where a mark-delete at a position comes to rest: it moves over ranges that follow it."""
    span = w.range_spans[cursor]
    end = span[AT] + span[USED]
    while True:
        to, first = follow(w, key, ledger, entry)
        at = lower(w.ranges, span, to, first)
        if at == end or w.ranges[at, 0] != to or w.ranges[at, FIRST] != first:
            at -= 1  # the position may be within a range
        if at < span[AT] or w.ranges[at, 0] != to:
            return ledger, entry
        if not is_before(ledger, entry, to, w.ranges[at, LAST]):
            return ledger, entry
        ledger, entry = to, w.ranges[at, LAST]


@compiled
def _absorb(w: Store, key: Int, cursor: Int) -> None:
    """Move the mark-delete over the ranges that follow it, and drop those that it has passed."""
    c, span = w.cursors.rows[cursor], w.range_spans[cursor]
    ledger, entry = absorbed(w, key, cursor, c.ledger, c.entry)
    if ledger != c.ledger or entry != c.entry:
        c.ledger, c.entry, c.first_ms = ledger, entry, NULL
    while span[USED] > 0:
        at = span[AT]
        if is_before(ledger, entry, w.ranges[at, 0], w.ranges[at, LAST]):
            if w.ranges[at, 0] == ledger:
                w.ranges[at, FIRST] = max(w.ranges[at, FIRST], entry + 1)
            return
        drop(span, np.int64(1))


@compiled
def observe(
    w: Store, key: Int, cursor: Int, ledger: Int, entry: Int, first_ms: Int, source: Int
) -> None:
    """Apply the position of a `cursor_state`."""
    c = w.cursors.rows[cursor]
    floor = c.floor_ledger
    if floor != NULL and is_before(ledger, entry, floor, c.floor_entry):
        ledger, entry, first_ms = floor, c.floor_entry, NULL
    if is_before(ledger, entry, c.ledger, c.entry):
        w.range_spans[cursor, USED], c.beyond = 0, 0
        _set_back(c, ledger, entry)
    if first_ms != NULL or ledger != c.ledger or entry != c.entry:
        c.first_ms, c.first_source = first_ms, source
    c.ledger, c.entry = ledger, entry
    _absorb(w, key, cursor)


@compiled
def _set_back(c: Record, ledger: Int, entry: Int) -> None:
    """Note that a cursor is set back: neither growth nor acknowledgement, so rates begin anew."""
    if c.back_ledger == NULL:
        c.back_ledger, c.back_entry = c.ledger, c.entry
    c.back_to_ledger, c.back_to_entry, c.checks = ledger, entry, 0


@compiled
def take_ranges(w: Store, key: Int, cursor: Int, begin: Int, end: Int) -> None:
    """Replace the acknowledged ranges of a cursor by some of `acked`.

    Beyond MOST_RANGES, only how many entries they have is kept.
    """
    c, span = w.cursors.rows[cursor], w.range_spans[cursor]
    span[USED], c.beyond = 0, 0
    for i in range(begin, end):
        ledger, first, last = w.acked[i, 0], w.acked[i, FIRST], w.acked[i, LAST]
        if span[USED] < MOST_RANGES:
            _put_range(w, key, cursor, ledger, first, last)
        else:
            c.beyond += max(last - first + 1, 0)
    _absorb(w, key, cursor)


@compiled
def _put_range(w: Store, key: Int, cursor: Int, ledger: Int, first: Int, last: Int) -> None:
    """Add a range behind the mark-delete and behind all ranges of a cursor."""
    c, span = w.cursors.rows[cursor], w.range_spans[cursor]
    if last < first or not is_before(c.ledger, c.entry, ledger, last):
        return
    at = span[AT] + span[USED]
    if span[USED] > 0 and not is_before(w.ranges[at - 1, 0], w.ranges[at - 1, LAST], ledger, first):
        return
    at = insert(w.ranges, span, w.tops, RANGES, at)
    w.ranges[at, 0], w.ranges[at, FIRST], w.ranges[at, LAST] = ledger, first, last


@compiled
def unacked_after(w: Store, key: Int, cursor: Int, ledger: Int, entry: Int) -> Int:
    """How many entries after a position a cursor has not acknowledged; sums are up to date."""
    span = w.range_spans[cursor]
    left = entries_after(w, key, ledger, entry) - w.cursors.rows[cursor].beyond
    for i in range(span[AT], span[AT] + span[USED]):
        at, first = find(w, key, w.ranges[i, 0]), w.ranges[i, FIRST]
        if at >= 0 and w.ranges[i, 0] >= ledger:
            first = max(first, up(entry)) if w.ranges[i, 0] == ledger else first
            last = min(w.ranges[i, LAST], w.ledgers[at, ENTRIES] - 1)
            left -= max(last - first + 1, 0)
    return max(left, np.int64(0))


@compiled
def first_hole(w: Store, key: Int, cursor: Int) -> tuple[Int, Int]:
    """The first entry that a cursor has not acknowledged; NULL without one."""
    c, span = w.cursors.rows[cursor], w.range_spans[cursor]
    ledger, entry, i = c.ledger, c.entry, span[AT]
    while True:
        at, entry = first_after(w, key, ledger, entry)
        if at < 0:
            return NULL, NULL
        ledger = w.ledgers[at, ID]
        while i < span[AT] + span[USED] and is_before(
            w.ranges[i, 0], w.ranges[i, LAST], ledger, entry
        ):
            i += 1
        if i == span[AT] + span[USED] or w.ranges[i, 0] != ledger or w.ranges[i, FIRST] > entry:
            return ledger, entry
        entry = w.ranges[i, LAST]


@compiled
def acknowledge_to(w: Store, key: Int, cursor: Int, ledger: Int, entry: Int) -> None:
    """Acknowledge everything up to a position."""
    c = w.cursors.rows[cursor]
    if is_before(c.ledger, c.entry, ledger, entry):
        c.ledger, c.entry, c.first_ms = ledger, entry, NULL
    _absorb(w, key, cursor)


@compiled
def acknowledge(w: Store, key: Int, cursor: Int, ledger: Int, entry: Int) -> None:
    """Acknowledge one entry."""
    c = w.cursors.rows[cursor]
    if is_before(c.ledger, c.entry, ledger, entry):
        _remember(w, cursor, ledger, entry)
    _absorb(w, key, cursor)


@compiled
def _remember(w: Store, cursor: Int, ledger: Int, entry: Int) -> None:
    """Add an entry to the ranges, merging neighbours; the highest range may be dropped."""
    span = w.range_spans[cursor]
    at = lower(w.ranges, span, ledger, entry)
    end = span[AT] + span[USED]
    joins_last = (
        at > span[AT] and w.ranges[at - 1, 0] == ledger and w.ranges[at - 1, LAST] >= entry - 1
    )
    joins_next = at < end and w.ranges[at, 0] == ledger and w.ranges[at, FIRST] <= up(entry)
    if joins_last and joins_next:
        w.ranges[at, FIRST] = w.ranges[at - 1, FIRST]
        remove(w.ranges, span, at - 1)
    elif joins_last:
        w.ranges[at - 1, LAST] = max(w.ranges[at - 1, LAST], entry)
    elif joins_next:
        w.ranges[at, FIRST] = min(w.ranges[at, FIRST], entry)
    else:
        if span[USED] == MOST_RANGES:
            if at == end:
                return
            span[USED] -= 1
        at = insert(w.ranges, span, w.tops, RANGES, at)
        w.ranges[at, 0], w.ranges[at, FIRST], w.ranges[at, LAST] = ledger, entry, entry


@compiled
def hindmost(w: Store, key: Int, durable: Int) -> Int:
    """The cursor with the smallest position, the smallest name among equals; of all, or of those that
    are `durable` (1)."""
    found: Int = NOBODY
    j = first_cursor(w, key)
    while j >= 0:
        c, least = w.cursors.rows[j], w.cursors.rows[found]
        if (c.durable >= durable and c.ledger != NULL) and (
            found < 0 or is_before(c.ledger, c.entry, least.ledger, least.entry)
        ):
            found = j
        j = w.cursors_of.following[j]
    return found


@compiled
def slowest(w: Store, key: Int) -> Int:
    """The hindmost durable cursor."""
    return hindmost(w, key, DURABLE)
