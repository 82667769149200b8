"""Evictions, simulated on copies of the mark-deletes (`to_ledger`, `to_entry` of the cursors)."""

from __future__ import annotations

import numpy as np

from state.backlog import layout as L
from state.backlog.ages import is_older, sample_at, time_after
from state.backlog.cursors import (
    absorbed,
    acknowledge_to,
    first_cursor,
    is_before,
    slowest,
    unacked_after,
)
from state.backlog.layout import (
    AT,
    ENTRIES,
    ENTRY,
    ID,
    LEDGERS,
    MS,
    NOBODY,
    NULL,
    SAMPLES,
    USED,
    Int,
    Out,
    Record,
    Store,
    begin_row,
    compiled,
)
from state.backlog.ledgers import (
    bytes_after,
    closed_at,
    first_after,
    forward,
    is_open,
    plus,
)
from state.backlog.pool import lower

REDUCTION = 0.9
MOST_SKIPPED = 2.0**31 - 1
"""Most entries that a round skips: a broker counts them as an `int`."""
MOST_ROUNDS = 100
"""Rounds after which a cursor skips its whole share: two of them may overtake one another for as
long as a topic has entries, of which there are at most 2**63."""


@compiled
def _begin(w: Store, key: Int) -> None:
    """Set the simulated positions to the real ones."""
    j = first_cursor(w, key)
    while j >= 0:
        c = w.cursors.rows[j]
        c.to_ledger, c.to_entry, c.moves = c.ledger, c.entry, 0
        j = w.cursors_of.following[j]


@compiled
def _slowest(w: Store, key: Int) -> Int:
    """The durable cursor with the smallest simulated position."""
    found: Int = NOBODY
    j = first_cursor(w, key)
    while j >= 0:
        c, least = w.cursors.rows[j], w.cursors.rows[found]
        if c.durable != 0 and (
            found < 0 or is_before(c.to_ledger, c.to_entry, least.to_ledger, least.to_entry)
        ):
            found = j
        j = w.cursors_of.following[j]
    return found


@compiled
def _by_size(w: Store, key: Int, limit: Int) -> tuple[Int, Int, Int, float]:
    """Skip entries of the slowest cursor until the backlog fits. Returns the number of moved
    cursors (listed in `order`), rounds, the reason of the end and the first factor (NaN: none).
    """
    target, before, moved, rounds = REDUCTION * limit, NOBODY, np.int64(0), np.int64(0)
    first: float = np.nan
    while True:
        oldest = _slowest(w, key)
        c = w.cursors.rows[oldest]
        backlog = bytes_after(w, key, c.to_ledger, c.to_entry) if oldest >= 0 else np.int64(0)
        if backlog <= target:
            return moved, rounds, L.REACHED, first
        if oldest == before:
            return moved, rounds, L.SAME_CURSOR, first
        before = oldest
        entries = unacked_after(w, key, oldest, c.to_ledger, c.to_entry)
        factor = (backlog - target) / backlog
        if np.isnan(first):
            first = factor
        wanted = factor * entries
        skip = np.int64(min(wanted, MOST_SKIPPED if rounds < MOST_ROUNDS else 2.0**62))
        if skip == 0:
            return moved, rounds, L.SKIP_ZERO, first
        if c.moves == 0:
            w.order[moved] = oldest
            moved += 1
            c.factor = factor
        c.moves += 1
        rounds += 1
        ledger, entry = forward(w, key, c.to_ledger, c.to_entry, skip)
        c.to_ledger, c.to_entry = absorbed(w, key, oldest, ledger, entry)


@compiled
def _insert_by_position(w: Store, count: Int, cursor: Int) -> None:
    """Insert a cursor into the first ones of `order`, which are in the order of their positions."""
    c, place = w.cursors.rows[cursor], count
    while place > 0:
        before = w.cursors.rows[w.order[place - 1]]
        if not is_before(c.ledger, c.entry, before.ledger, before.entry):
            break
        w.order[place] = w.order[place - 1]
        place -= 1
    w.order[place] = cursor


@compiled
def _by_ledger(w: Store, key: Int, limit_s: Int, now: Int) -> tuple[Int, Int]:
    """Move durable cursors over ledgers that are unknown or too old; returns the number of moved
    cursors and the jumps.

    The slowest cursor jumps from ledger to ledger, the others when it reaches them: all end at the
    first ledger that a cursor may not leave. The hindmost cursor moves first.
    """
    moved, rounds, oldest = np.int64(0), np.int64(0), slowest(w, key)
    span, j = w.spans[LEDGERS, key], first_cursor(w, key)
    end = span[AT] + span[USED]
    stop = end if oldest < 0 else lower(w.ledgers, span, w.cursors.rows[oldest].ledger, NULL)
    if stop == end:
        return moved, rounds
    while stop + 1 < end:
        close_ms = closed_at(w, stop)
        if close_ms == NULL or not is_older(now, close_ms, limit_s):
            break
        stop += 1
    while j >= 0:
        c = w.cursors.rows[j]
        if c.durable != 0 and c.ledger < w.ledgers[stop, ID]:
            at = lower(w.ledgers, span, c.ledger, NULL)
            rounds += stop - at + (0 if w.ledgers[at, ID] == c.ledger else 1)
            c.to_ledger, c.to_entry, c.moves = w.ledgers[stop, ID], -1, 1
            _insert_by_position(w, moved, j)
            moved += 1
        j = w.cursors_of.following[j]
    return moved, rounds


@compiled
def expired_to(
    w: Store, key: Int, ledger: Int, entry: Int, seconds: Int, now: Int, precise: Int
) -> tuple[Int, Int]:
    """The mark-delete after messages beyond an age are expired, up to the first that is younger or
    of unknown age.
    """
    at, first = first_after(w, key, ledger, entry)
    if at < 0:
        return ledger, entry
    time, _ = time_after(w, key, ledger, entry, precise)
    samples = w.spans[SAMPLES, key]
    last = first
    while time != NULL and is_older(now, time, seconds):
        ledger, entry = w.ledgers[at, ID], last
        at, first = first_after(w, key, ledger, entry)
        if at < 0:
            break
        # the entries up to the next sample, or to the end of the ledger, have one time
        sample = sample_at(w, key, w.ledgers[at, ID], first)
        if sample >= 0:
            time = w.samples[sample, MS]
        else:
            time = NULL if is_open(w, key, at) else closed_at(w, at)
            sample = samples[AT] - 1
        last = w.ledgers[at, ENTRIES] - 1
        if (
            sample + 1 < samples[AT] + samples[USED]
            and w.samples[sample + 1, ID] == w.ledgers[at, ID]
        ):
            last = min(last, w.samples[sample + 1, ENTRY] - 1)
    return ledger, entry


@compiled
def _by_age(w: Store, key: Int, seconds: Int, now: Int, precise: Int) -> Int:
    """Expire messages that are older than some seconds on every subscription; returns how many
    have moved."""
    moved, j = np.int64(0), first_cursor(w, key)
    while j >= 0:
        c = w.cursors.rows[j]
        if c.kind != L.DEDUPLICATION and c.kind != L.REPLICATOR:
            ledger, entry = expired_to(w, key, c.ledger, c.entry, seconds, now, precise)
            c.to_ledger, c.to_entry = absorbed(w, key, j, ledger, entry)
            if c.to_ledger != c.ledger or c.to_entry != c.entry:
                c.moves = 1
                w.order[moved] = j
                moved += 1
        j = w.cursors_of.following[j]
    return moved


@compiled
def evict(w: Store, o: Out, key: Int, kind: Int, limit: Int, precise: Int, check: Record) -> None:
    """One eviction call, by size or time: its rows begin as that of the check."""
    now, reduced = check.at_ms, np.int64(REDUCTION * limit)
    call = o.evictions[w.settings[0].evictions]
    call.type, call.rounds, call.target, call.older_s, call.factor = kind, NULL, NULL, NULL, np.nan
    _begin(w, key)
    if kind == L.SIZE:
        moved, call.rounds, call.rule, call.factor = _by_size(w, key, limit)
        call.target = reduced
    elif precise != 0:
        moved = _by_age(w, key, reduced, now, precise) if reduced > 0 else np.int64(0)
        call.rule, call.older_s = L.EXPIRED, reduced
    else:
        moved, call.rounds = _by_ledger(w, key, limit, now)
        call.rule, call.older_s = L.JUMPED if call.rounds > 0 else L.NOT_CLOSED, limit
    _write(w, o, key, moved, check, call)
    if w.settings[0].apply == 0:
        return
    for i in range(moved):
        j = w.order[i]
        c = w.cursors.rows[j]
        c.floor_ledger, c.floor_entry = c.to_ledger, c.to_entry
        acknowledge_to(w, key, j, c.to_ledger, c.to_entry)
        w.keys[key].version += c.durable


@compiled
def _write(w: Store, o: Out, key: Int, moved: Int, check: Record, call: Record) -> None:
    """Rows of a call: one of each cursor that has moved, else one of the slowest. `call` is the first
    of them, and has what all have in common."""
    p = w.settings[0]
    begin, oldest, skipped = p.evictions, slowest(w, key), np.int64(0)
    c, last = w.cursors.rows[oldest], w.cursors.rows[_slowest(w, key)]
    before = bytes_after(w, key, c.ledger, c.entry) if oldest >= 0 else np.int64(0)
    after = bytes_after(w, key, last.to_ledger, last.to_entry) if oldest >= 0 else np.int64(0)
    if moved == 0:
        w.order[0] = oldest
    for i in range(max(moved, np.int64(1))):
        row = o.evictions[p.evictions]
        p.evictions += 1
        begin_row(row, check, i)
        row.rule, row.type, row.rounds, row.factor = call.rule, call.type, call.rounds, call.factor
        row.target, row.older_s, row.count = call.target, call.older_s, 0
        row.before, row.after = before, after
        row.name, row.from_ledger, row.to_ledger, row.skipped = NOBODY, NULL, NULL, 0
        if w.order[i] < 0:
            continue
        c = w.cursors.rows[w.order[i]]
        row.name, row.from_ledger, row.from_entry = c.name, c.ledger, c.entry
        row.to_ledger, row.to_entry = c.to_ledger, c.to_entry
        row.skipped = unacked_after(w, key, w.order[i], c.ledger, c.entry) - unacked_after(
            w, key, w.order[i], c.to_ledger, c.to_entry
        )
        skipped = plus(skipped, row.skipped)
        if call.type == L.SIZE and moved > 0:
            row.factor = c.factor
    for i in range(begin, p.evictions):
        o.evictions[i].phantom = 1 if skipped == 0 else 0
    if skipped != 0 or p.every_call != 0:
        o.evictions[begin].count = 1
