"""Evictions, simulated on copies of the mark-deletes (`to_ledger`, `to_entry` of the cursors)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from state.backlog import layout as L
from state.backlog.ages import is_older, sample_at, time_after
from state.backlog.cursors import absorbed, acknowledge_to, is_before, slowest, unacked_after
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
    SLOTS,
    USED,
    Int,
    Out,
    Record,
    Store,
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


class _Call(NamedTuple):
    """What an eviction call has done."""

    kind: Int
    """SIZE or TIME."""
    moved: Int
    """Cursors, which `order` lists."""
    rule: Int
    rounds: Int
    """NULL where there are none."""
    target: Int
    """Bytes to reach, NULL of a call by time."""
    older_s: Int
    """Age of what expires, NULL of a call by size."""
    first: float
    """The first factor, NaN without one."""


@compiled
def _begin(w: Store, key: Int) -> None:
    """Set the simulated positions to the real ones."""
    slots = w.spans[SLOTS, key]
    for i in range(slots[AT], slots[AT] + slots[USED]):
        c = w.cursors[w.slots[i, 0]]
        c["to_ledger"], c["to_entry"], c["moves"] = c["ledger"], c["entry"], 0


@compiled
def _slowest(w: Store, key: Int) -> Int:
    """The durable cursor with the smallest simulated position."""
    slots, found = w.spans[SLOTS, key], NOBODY
    for i in range(slots[AT], slots[AT] + slots[USED]):
        j = w.slots[i, 0]
        c = w.cursors[j]
        if c["durable"] != 0 and (
            found < 0
            or is_before(
                c["to_ledger"],
                c["to_entry"],
                w.cursors[found]["to_ledger"],
                w.cursors[found]["to_entry"],
            )
        ):
            found = j
    return found


@compiled
def _by_size(w: Store, key: Int, limit: Int) -> tuple[Int, Int, Int, float]:
    """Skip entries of the slowest cursor until the backlog fits. Returns the number of moved
    cursors (listed in `order`), rounds, the reason of the end and the first factor (NaN: none).
    """
    target, before, moved, rounds = REDUCTION * limit, NOBODY, np.int64(0), np.int64(0)
    first: Record
    first = np.nan
    while True:
        oldest = _slowest(w, key)
        if oldest < 0:
            return moved, rounds, L.REACHED, first
        c = w.cursors[oldest]
        backlog = bytes_after(w, key, c["to_ledger"], c["to_entry"])
        if backlog <= target:
            return moved, rounds, L.REACHED, first
        if oldest == before:
            return moved, rounds, L.SAME_CURSOR, first
        before = oldest
        entries = unacked_after(w, key, oldest, c["to_ledger"], c["to_entry"])
        factor = (backlog - target) / backlog
        if np.isnan(first):
            first = factor
        wanted = factor * entries
        skip = np.int64(min(wanted, MOST_SKIPPED if rounds < MOST_ROUNDS else 2.0**62))
        if skip == 0:
            return moved, rounds, L.SKIP_ZERO, first
        if c["moves"] == 0:
            w.order[moved] = oldest
            moved += 1
            c["factor"] = factor
        c["moves"] += 1
        rounds += 1
        ledger, entry = forward(w, key, c["to_ledger"], c["to_entry"], skip)
        c["to_ledger"], c["to_entry"] = absorbed(w, key, oldest, ledger, entry)


@compiled
def _by_ledger(w: Store, key: Int, limit_s: Int, now: Int) -> tuple[Int, Int]:
    """Move durable cursors over ledgers that are unknown or too old; returns the number of moved
    cursors and the jumps.

    The slowest cursor jumps from ledger to ledger, the others when it reaches them: all end at the
    first ledger that a cursor may not leave. The hindmost cursor moves first.
    """
    moved, rounds, oldest = np.int64(0), np.int64(0), slowest(w, key)
    span, slots = w.spans[LEDGERS, key], w.spans[SLOTS, key]
    end = span[AT] + span[USED]
    stop = end if oldest < 0 else lower(w.ledgers, span, w.cursors[oldest]["ledger"], NULL)
    if stop == end:
        return moved, rounds
    while stop + 1 < end:
        close_ms = closed_at(w, stop)
        if close_ms == NULL or not is_older(now, close_ms, limit_s):
            break
        stop += 1
    for i in range(slots[AT], slots[AT] + slots[USED]):
        j = w.slots[i, 0]
        c = w.cursors[j]
        if c["durable"] == 0 or c["ledger"] >= w.ledgers[stop, ID]:
            continue
        at = lower(w.ledgers, span, c["ledger"], NULL)
        rounds += stop - at + (0 if w.ledgers[at, ID] == c["ledger"] else 1)
        c["to_ledger"], c["to_entry"], c["moves"] = w.ledgers[stop, ID], -1, 1
        place = moved
        while place > 0 and is_before(
            c["ledger"],
            c["entry"],
            w.cursors[w.order[place - 1]]["ledger"],
            w.cursors[w.order[place - 1]]["entry"],
        ):
            w.order[place] = w.order[place - 1]
            place -= 1
        w.order[place] = j
        moved += 1
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
    moved, slots = np.int64(0), w.spans[SLOTS, key]
    for i in range(slots[AT], slots[AT] + slots[USED]):
        j = w.slots[i, 0]
        c = w.cursors[j]
        if c["kind"] == L.DEDUPLICATION or c["kind"] == L.REPLICATOR:
            continue
        ledger, entry = expired_to(w, key, c["ledger"], c["entry"], seconds, now, precise)
        c["to_ledger"], c["to_entry"] = absorbed(w, key, j, ledger, entry)
        if c["to_ledger"] != c["ledger"] or c["to_entry"] != c["entry"]:
            c["moves"] = 1
            w.order[moved] = j
            moved += 1
    return moved


@compiled
def evict(w: Store, o: Out, key: Int, kind: Int, limit: Int, precise: Int, row: Record) -> None:
    """One eviction call: its rows begin as `row`, the check's."""
    now = row["at_ms"]
    rounds: Int
    target: Int
    older_s: Int
    first: Record
    moved, rounds, target, older_s, first = np.int64(0), NULL, NULL, NULL, np.nan
    _begin(w, key)
    if kind == L.SIZE:
        moved, rounds, rule, first = _by_size(w, key, limit)
        target = np.int64(REDUCTION * limit)
    elif precise != 0:
        older_s = np.int64(REDUCTION * limit)
        if older_s > 0:
            moved = _by_age(w, key, older_s, now, precise)
        rule = L.EXPIRED
    else:
        older_s = limit
        moved, rounds = _by_ledger(w, key, limit, now)
        rule = L.JUMPED if rounds > 0 else L.NOT_CLOSED
    _write(w, o, key, _Call(kind, moved, rule, rounds, target, older_s, first), row)
    if w.settings[0]["apply"] == 0:
        return
    for i in range(moved):
        j = w.order[i]
        c = w.cursors[j]
        c["floor_ledger"], c["floor_entry"] = c["to_ledger"], c["to_entry"]
        acknowledge_to(w, key, j, c["to_ledger"], c["to_entry"])
        w.keys[key]["version"] += c["durable"]


@compiled
def _write(w: Store, o: Out, key: Int, call: _Call, check: Record) -> None:
    """Rows of a call: one of each cursor that has moved, else one of the slowest."""
    p = w.settings[0]
    oldest, last, skipped = slowest(w, key), _slowest(w, key), np.int64(0)
    before = after = np.int64(0)
    if oldest >= 0:
        c = w.cursors[oldest]
        before = bytes_after(w, key, c["ledger"], c["entry"])
        c = w.cursors[last]
        after = bytes_after(w, key, c["to_ledger"], c["to_entry"])
    begin = p["evictions"]
    if call.moved == 0:
        w.order[0] = oldest
    for i in range(max(call.moved, np.int64(1))):
        row = o.evictions[p["evictions"]]
        p["evictions"] += 1
        row["key"], row["at_ms"], row["mono_ns"] = key, check["at_ms"], check["mono_ns"]
        row["broker"], row["feed"], row["row_no"] = check["broker"], check["feed"], i
        row["rule"], row["type"], row["rounds"] = call.rule, call.kind, call.rounds
        row["target"], row["older_s"], row["count"] = call.target, call.older_s, 0
        row["before"], row["after"], row["factor"] = before, after, np.nan
        row["name"], row["from_ledger"], row["to_ledger"] = NOBODY, NULL, NULL
        row["skipped"] = 0
        if w.order[i] < 0:
            continue
        c = w.cursors[w.order[i]]
        row["name"], row["from_ledger"], row["from_entry"] = c["name"], c["ledger"], c["entry"]
        row["to_ledger"], row["to_entry"] = c["to_ledger"], c["to_entry"]
        row["skipped"] = unacked_after(w, key, w.order[i], c["ledger"], c["entry"]) - unacked_after(
            w, key, w.order[i], c["to_ledger"], c["to_entry"]
        )
        skipped = plus(skipped, row["skipped"])
        if call.kind == L.SIZE:
            row["factor"] = call.first if call.moved == 0 else c["factor"]
    for i in range(begin, p["evictions"]):
        o.evictions[i]["phantom"] = 1 if skipped == 0 else 0
    if skipped != 0 or p["every_call"] != 0:
        o.evictions[begin]["count"] = 1
