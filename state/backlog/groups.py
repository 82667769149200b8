"""Kafka: what polls tell of a partition's log and of its groups, and what these lost.

A partition is a key with one ledger, number 0; a group is a cursor one before the offset that it
reads next. Rules: spec of backlog, section 7b. A key without a topic has the states of groups as a
whole.
"""

from __future__ import annotations

import numpy as np

from state.backlog import layout as L
from state.backlog.ages import (
    entry_added,
    entry_time,
    forget_times,
    ledger_stated,
)
from state.backlog.cursors import create, find_cursor, first_cursor, forget_first_times
from state.backlog.layout import (
    ENTRIES,
    LARGEST,
    NOBODY,
    NULL,
    Int,
    Out,
    Record,
    Store,
    compiled,
)
from state.backlog.ledgers import add, delete, find, state
from state.engine.kernel import codes

LOG = np.int64(0)
"""The one ledger of a partition."""
DELETED, KNOWN, WITH_LOG, KNOWN_WITHOUT = codes(5)[1:]
"""How a group has ended: its offset was deleted; its state is over; its log was deleted, or it is
followed no longer; both of these."""
WAITS, PENDING, EARLIER = np.int64(1), np.int64(3), np.int64(1)
"""A group waits for a transaction at the last stable offset, or since its next offset is in it; with
EARLIER added, an earlier record of its offset has said so."""


# -- what is known ---------------------------------------------------------------------------


@compiled
def end_of(w: Store, key: Int) -> Int:
    """The offset that the next record gets; NULL while the log is not known."""
    at = find(w, key, LOG)
    return w.ledgers[at, ENTRIES] if at >= 0 else NULL


@compiled
def unread_of(w: Store, key: Int, c: Record) -> Int:
    """Records that a group has not read, as far as known: by count, else by offsets."""
    end, start = end_of(w, key), w.keys[key].log_start
    if end == NULL or c.ledger == NULL:
        return np.int64(0)
    if c.unread != NULL and c.unread_end == end:
        return c.unread
    first = max(c.entry + 1, start)  # NULL is below every offset
    return max(end - first, np.int64(0))


@compiled
def is_held(w: Store, state: Int) -> bool:
    """Whether in this state an open transaction holds a group."""
    return state == w.settings[0].open or state == w.settings[0].pending


# -- records ---------------------------------------------------------------------------------


@compiled
def log_stated(w: Store, r: Record) -> None:
    """Apply the end, size and start of a log. One that is shorter than before is another log, whose
    records have other times."""
    key, end = r.key, r.ledger_entries
    k, before = w.keys[key], end_of(w, key)
    k.unseen &= ~L.SIZES
    if before != NULL and end < before:
        forget_times(w, key)
        forget_first_times(w, key, LARGEST)
    state(w, key, LOG, end, r.ledger_bytes, NULL)
    k.log_start, k.log_gone = r.log_start, 0
    ledger_stated(w, key, LOG, end, NULL, r.ts_wall_ms)


@compiled
def log_deleted(w: Store, key: Int) -> None:
    """The partition is gone, and its groups with it, even if another log is there at the check."""
    k = w.keys[key]
    delete(w, key, LOG)
    k.log_start, k.log_gone = NULL, 1
    forget_times(w, key)
    j = first_cursor(w, key)
    while j >= 0:
        w.cursors.rows[j].ended = WITH_LOG
        j = w.cursors_of.following[j]


@compiled
def entry_seen(w: Store, r: Record) -> None:
    """Count a record of the log, and sample its time."""
    add(w, r.key, LOG, r.entry_id, r.entry_bytes)
    w.keys[r.key].log_gone = 0
    entry_added(w, r)


@compiled
def _forget_transaction(c: Record) -> None:
    c.waits, c.told = 0, 0
    c.transaction, c.producer, c.begun_ms = NOBODY, NULL, NULL


@compiled
def _forget_offset(c: Record) -> None:
    c.ledger, c.entry, c.first_ms, c.safe = NULL, NULL, NULL, NULL
    _forget_transaction(c)


@compiled
def _new_or_known(w: Store, key: Int, name: Int) -> Int:
    """The cursor of a group; one that has ended begins anew."""
    j = find_cursor(w, key, name)
    if j < 0:
        j = create(w, key, name, NULL, NULL)
        w.cursors.rows[j].durable = 1
    elif w.cursors.rows[j].ended != 0:
        c = w.cursors.rows[j]
        c.ended, c.checks, c.before_ledger = 0, 0, NULL
        c.client, c.host = NOBODY, NOBODY
        _forget_offset(c)
    w.keys[key].unseen &= ~L.CURSORS
    w.keys[key].log_gone = 0
    return j


@compiled
def _count_lost(w: Store, o: Out, r: Record, c: Record) -> None:
    """A row for the records that were deleted before the group read them.

    `safe`: offset below which nothing more can be lost: the log start of earlier polls, or an end
    before which nothing was left to read. Committed 40, start 50: 10 are lost; start 60 then: 10
    more; committed 80, start 70: none.
    """
    start, end, committed = w.keys[r.key].log_start, end_of(w, r.key), c.entry + 1
    if start == NULL or end == NULL:
        return
    first_sight = c.safe == NULL
    if first_sight:
        # One offset of an emptied log: the marker of a transaction, before which readers of it stand.
        c.safe = start if start == end == committed + 1 else committed
    elif end < c.safe:
        c.safe = start  # another log
    begin = max(committed, c.safe)
    if start > begin:
        row = o.lost[w.settings[0].lost]
        w.settings[0].lost += 1
        row.record, row.key, row.name, row.rule = r.record, r.key, c.name, 1 if first_sight else 0
        row.committed, row.begin, row.end = committed, begin, start
    c.safe = start if first_sight else max(c.safe, start)
    if c.unread == 0:
        c.safe = max(c.safe, end)


@compiled
def committed(w: Store, o: Out, r: Record) -> None:
    """Apply the offset of a group."""
    key, entry = r.key, r.entry_id
    k, c = w.keys[key], w.cursors.rows[_new_or_known(w, key, r.subscription)]
    stands = c.ledger == LOG and c.entry == entry
    if c.ledger != NULL and entry < c.entry:
        c.checks = 0  # set back: neither growth nor consumption
    time, source = entry_time(r.publish_time_ms, r.broker_time_ms)
    was_deleted = k.log_start != NULL and k.log_start > entry + 1
    if time != NULL or not stands or was_deleted:
        c.first_ms, c.first_source = time, source
    c.ledger, c.entry, c.stated, c.answered_ms = LOG, entry, NOBODY, r.ts_wall_ms
    c.unread, c.unread_end = r.unread, end_of(w, key)
    c.client, c.host, c.type = r.client_id, r.client_host, r.group_type
    if stands and c.waits != 0:
        c.waits += c.waits % 2  # EARLIER: a `group_state` that follows says it again
    else:
        _forget_transaction(c)
    _count_lost(w, o, r, c)


@compiled
def _waits(w: Store, r: Record) -> None:
    """An open transaction holds a group, in the way of its state. A record without a producer leaves
    that which an earlier one has named."""
    j = find_cursor(w, r.key, r.subscription)
    if j < 0 or w.cursors.rows[j].ledger == NULL or w.cursors.rows[j].ended != 0:
        return
    c, begun_ms = w.cursors.rows[j], r.publish_time_ms
    waits = PENDING if r.group_state == w.settings[0].pending else WAITS
    if c.waits != waits and c.waits != waits + EARLIER:
        _forget_transaction(c)
    c.waits = waits
    if r.producer_id != NULL and (
        c.producer != r.producer_id or c.transaction != r.producer_name or c.begun_ms != begun_ms
    ):
        c.producer, c.transaction = r.producer_id, r.producer_name
        c.begun_ms, c.told = begun_ms, 0


@compiled
def stated(w: Store, r: Record) -> None:
    """Apply a state without an offset, which `known` ends, or that beside one."""
    key, name = r.key, r.subscription
    if is_held(w, r.group_state):
        _waits(w, r)
        return
    if r.group_state == w.settings[0].known:
        j = find_cursor(w, key, name)
        if j >= 0:
            w.cursors.rows[j].ended = (
                KNOWN_WITHOUT if w.cursors.rows[j].ended >= WITH_LOG else KNOWN
            )
        return
    c = w.cursors.rows[_new_or_known(w, key, name)]
    if w.keys[key].topic < 0:
        w.keys[key].unseen = 0  # of a whole group: there is no log
    if c.ledger != NULL:
        c.left_unread = unread_of(w, key, c)
        _forget_offset(c)
    c.stated, c.answered_ms, c.type = r.group_state, r.ts_wall_ms, r.group_type
    c.unread, c.unread_end = r.group_epoch, r.assignment_epoch


@compiled
def ended(w: Store, r: Record) -> None:
    """A group has no offset any more, or (`unread` 0) is followed no longer. The next check finds
    out whether its log is there."""
    j = find_cursor(w, r.key, r.subscription)
    if j >= 0 and w.cursors.rows[j].ended == 0:
        w.cursors.rows[j].ended = WITH_LOG if r.unread == 0 else DELETED
