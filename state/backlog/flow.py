"""Records of a shard, in their order, and its keys up to their clocks."""

from __future__ import annotations

import numpy as np

from state.backlog import groups
from state.backlog import layout as L
from state.backlog.ages import entry_added, entry_time, forget_times, ledger_stated
from state.backlog.check import look_up, refused_by
from state.backlog.cursors import (
    acknowledge,
    acknowledge_to,
    create,
    find_cursor,
    first_cursor,
    forget,
    forget_first_times,
    is_before,
    observe,
    take_ranges,
)
from state.backlog.evictions import expired_to
from state.backlog.forecast import PRECISELY
from state.backlog.layout import (
    LEDGERS,
    NOBODY,
    NULL,
    SAMPLES,
    USED,
    Array,
    Int,
    Out,
    Record,
    Rows,
    Store,
    World,
    compiled,
)
from state.backlog.ledgers import add, delete, entries_after, state, sum_up
from state.backlog.passes import SILENT, begin_if_empty, lose_sight, reach, set_due, start_anew
from state.backlog.pool import is_short, room_for
from state.engine import tables
from state.engine.broker_changes import GAPS, STARTS, comes_late, rank_at, turn_after
from state.events import KIND_INDEX

CREATED = np.int64(KIND_INDEX["producer_created"])
CLOSED = np.int64(KIND_INDEX["producer_closed"])
ENTRY_ADDED = np.int64(KIND_INDEX["entry_added"])
ACK = np.int64(KIND_INDEX["ack"])
CURSOR_STATE = np.int64(KIND_INDEX["cursor_state"])
CURSOR_DELETED = np.int64(KIND_INDEX["cursor_deleted"])
LEDGER_STATE = np.int64(KIND_INDEX["ledger_state"])
LEDGER_DELETED = np.int64(KIND_INDEX["ledger_deleted"])
GROUP_STATE = np.int64(KIND_INDEX["group_state"])
DONE = np.int64(-1)


@compiled
def _is_short(w: World, o: Out, r: Record) -> bool:
    """Whether a record may not fit."""
    e, key, kind = w.store, r.key, r.event_type
    p = e.settings[0]
    if kind == ENTRY_ADDED or kind == LEDGER_STATE:
        return is_short(e.ledgers, e.spans[LEDGERS, key], e.tops[LEDGERS]) or is_short(
            e.samples, e.spans[SAMPLES, key], e.tops[SAMPLES]
        )
    if kind == ACK:
        return bool(e.tops[L.RANGES] + 2 * L.MOST_RANGES > len(e.ranges))
    if kind == CURSOR_STATE or kind == GROUP_STATE:
        need = min(r.ranges_end - r.ranges_begin, L.MOST_RANGES)
        return bool(
            tables.is_short(e.cursors, np.int64(1))
            or e.links[key].cursors + 1 >= len(e.order)
            or p.lost == len(o.lost)
            or (need > 0 and e.tops[L.RANGES] + room_for(need) > len(e.ranges))
        )
    return kind == CREATED and bool(
        p.refusals == len(o.refusals) or tables.is_short(w.producers, np.int64(1))
    )


@compiled
def _expire(w: World, r: Record, c: Record) -> None:
    """Count the messages that have expired on a cursor since its last state: by the broker's own
    count, else the entries beyond the TTL that its new mark-delete has passed.
    """
    e, key, before, total = w.store, r.key, c.expired_total, r.expired_messages
    if total != NULL:
        # A broker that loads a topic counts from 0.
        more = total if total < before else total - before
        c.expired_total = total
        known = c.expired if c.expired != NULL else np.int64(0)
        c.expired = known + more if before != NULL else np.int64(0)
        return
    if not is_before(c.ledger, c.entry, r.ledger_id, r.entry_id):
        return
    look_up(w, key, r.rank)
    ttl_s = w.quota[0].ttl_s
    if ttl_s <= 0:
        return
    ledger, entry = expired_to(e, key, c.ledger, c.entry, ttl_s, r.ts_wall_ms, PRECISELY)
    if is_before(r.ledger_id, r.entry_id, ledger, entry):
        ledger, entry = r.ledger_id, r.entry_id
    sum_up(e, key)
    gone = entries_after(e, key, c.ledger, c.entry) - entries_after(e, key, ledger, entry)
    c.expired = gone + (c.expired if c.expired != NULL else np.int64(0))


@compiled
def _take_cursor(w: World, r: Record) -> None:
    """The position of a cursor, which may be new."""
    e, key, ledger, entry = w.store, r.key, r.ledger_id, r.entry_id
    if ledger == NULL:
        return
    cursor = find_cursor(e, key, r.subscription)
    is_new = cursor < 0
    if is_new:
        cursor = create(e, key, r.subscription, ledger, entry)
        c = e.cursors.rows[cursor]
        c.kind, c.expired_total = r.kind, r.expired_messages
    else:
        _expire(w, r, e.cursors.rows[cursor])
    k, c = e.keys[key], e.cursors.rows[cursor]
    k.unseen &= ~L.CURSORS
    was_durable, old_ledger, old_entry = c.durable, c.ledger, c.entry
    c.durable, c.client = 1 if r.durable != 0 else 0, r.remarks
    first_ms, source = entry_time(r.publish_time_ms, r.broker_time_ms)
    observe(e, key, cursor, ledger, entry, first_ms, source)
    if r.ranges_begin >= 0:
        take_ranges(e, key, cursor, r.ranges_begin, r.ranges_end)
    moved = is_new or c.ledger != old_ledger or c.entry != old_entry
    if was_durable != c.durable or (moved and c.durable != 0):
        k.version += 1


@compiled
def _take_ack(w: Store, r: Record) -> None:
    """An acknowledgement, of a cursor that is known."""
    cursor = find_cursor(w, r.key, r.subscription)
    if cursor < 0:
        return
    c = w.cursors.rows[cursor]
    ledger, entry = c.ledger, c.entry
    if r.ack_cumulative == 1:
        acknowledge_to(w, r.key, cursor, r.ledger_id, r.entry_id)
    else:
        acknowledge(w, r.key, cursor, r.ledger_id, r.entry_id)
    if c.durable != 0 and (c.ledger != ledger or c.entry != entry):
        w.keys[r.key].version += 1


@compiled
def _take_producer(w: World, o: Out, r: Record) -> None:
    """A producer is created, unless a quota refuses it, or closed."""
    e, key, refusal = w.store.links[r.key], (r.key, r.cnx_id, r.producer_id), NOBODY
    if r.event_type == CREATED:
        refusal = refused_by(w, r.key, r.rank, r.ts_wall_ms)
    known = tables.find(w.producers, key)
    if r.event_type == CREATED and refusal < 0:
        if known < 0:
            tables.adopt(w.producers_of, r.key, tables.at(w.producers, key))
            e.producers += 1
        return
    if known >= 0:
        tables.release(w.producers_of, r.key, known)
        tables.drop(w.producers, key)
        e.producers -= 1
    if refusal >= 0:
        _put_refusal(w, o, r, refusal)


@compiled
def _put_refusal(w: World, o: Out, r: Record, quota_type: Int) -> None:
    """A row of a producer that is refused."""
    p, q = w.store.settings[0], w.quota[0]
    row = o.refusals[p.refusals]
    p.refusals += 1
    row.record, row.key, row.rule = r.record, r.key, quota_type
    row.policy = q.size_policy if quota_type == L.SIZE else q.time_policy


@compiled
def _take_ledger(w: Store, r: Record) -> None:
    """The contents of a ledger, or its deletion."""
    key, ledger = r.key, r.ledger_id
    if r.event_type == LEDGER_STATE:
        w.keys[key].unseen &= ~L.SIZES
        close_ms = state(w, key, ledger, r.ledger_entries, r.ledger_bytes, r.ledger_close_ms)
        ledger_stated(w, key, ledger, r.ledger_entries, close_ms, r.ts_wall_ms)
        return
    delete(w, key, ledger)
    forget_first_times(w, key, ledger)
    if w.spans[LEDGERS, key, USED] == 0:
        forget_times(w, key)


@compiled
def _take_group(w: World, o: Out, r: Record) -> None:
    """A record of a partition of Kafka, or of a whole group; other kinds mean nothing there."""
    e, kind = w.store, r.event_type
    if kind == CURSOR_DELETED:
        groups.ended(e, r)
    elif kind == GROUP_STATE:
        groups.stated(e, r)
    elif r.ledger_id != groups.LOG:
        return
    elif kind == LEDGER_STATE:
        groups.log_stated(e, r)
    elif kind == LEDGER_DELETED:
        groups.log_deleted(e, r.key)
        begin_if_empty(w, r.key)
    elif kind == ENTRY_ADDED:
        groups.entry_seen(e, r)
    elif kind == CURSOR_STATE:
        groups.committed(e, o, r)


@compiled
def _take_topic(w: World, o: Out, r: Record) -> None:
    """A record of a topic of Pulsar."""
    e, kind, key = w.store, r.event_type, r.key
    if kind == ENTRY_ADDED:
        if add(e, key, r.ledger_id, r.entry_id, r.entry_bytes):
            entry_added(e, r)
    elif kind == ACK:
        _take_ack(e, r)
    elif kind == CURSOR_STATE:
        _take_cursor(w, r)
    elif kind == CURSOR_DELETED:
        forget(e, key, r.subscription)
        begin_if_empty(w, key)
    elif kind == LEDGER_STATE or kind == LEDGER_DELETED:
        _take_ledger(e, r)
        begin_if_empty(w, key)
    elif kind == CREATED or kind == CLOSED:
        _take_producer(w, o, r)


@compiled
def _take(w: World, o: Out, r: Record) -> None:
    """Apply one record, once its key has reached its time."""
    key, at_ms, k, e = r.key, r.ts_wall_ms, w.store.keys[r.key], w.store.links[r.key]
    if k.last_ms == NULL or e.place != r.place:
        e.place = r.place
        e.turn = turn_after(w.timeline.turns, w.timeline.turn_start, e.place, r.rank)
        begin_if_empty(w, key)
        k.last_ms = at_ms
        set_due(w, key, at_ms)
    elif (at_ms - k.last_ms) // w.timeline.turns[e.turn - 1].interval_ms >= SILENT:
        k.last_ms = at_ms
        set_due(w, key, at_ms)  # it is silent no longer
    k.last_ms, k.last_ns, k.broker, k.feed = at_ms, r.ts_mono_ns, r.broker, r.source_feed
    if k.policy_topic < 0:
        return
    if k.kafka != 0:
        _take_group(w, o, r)
    else:
        _take_topic(w, o, r)


# -- a call ----------------------------------------------------------------------------------


@compiled
def prepare(w: World, begin_ms: Array) -> None:
    """Move every key past the turns that are before its clock at the beginning of the call (NULL:
    none).

    Turns that came with this call hold from the clock on. A start or a gap among them that is not
    newer than one that the key has had is ignored.
    """
    for key in range(len(w.store.keys)):
        e, begin = w.store.links[key], begin_ms[key]
        e.due_ms = NULL
        if begin == NULL or w.store.keys[key].last_ms == NULL:
            continue
        e.turn = turn_after(
            w.timeline.turns, w.timeline.turn_start, e.place, rank_at(w.timeline.shared_ms, begin)
        )
        if comes_late(w.timeline.turns, w.timeline.turn_start, e.place, e.turn, STARTS):
            start_anew(w, np.int64(key))
        if comes_late(w.timeline.turns, w.timeline.turn_start, e.place, e.turn, GAPS):
            lose_sight(w, np.int64(key))
        set_due(w, np.int64(key), begin)


@compiled
def judge(w: World, o: Out, records: Rows, begin: Int, next_ns: Array, next_broker: Array) -> Int:
    """Judge records, then move every key to its clock, from step `begin` on; returns the first step
    that there was no room for, or DONE.

    `next_ns` and `next_broker` are of the first record of each key that still waits.
    """
    for i in range(begin, len(records)):
        r = records[i]
        if not reach(w, o, r.key, r.ts_wall_ms, r.rank, r.ts_mono_ns, r.broker):
            return np.int64(i)
        if _is_short(w, o, r):
            return np.int64(i)
        _take(w, o, r)
    for key in range(max(begin - len(records), 0), len(w.store.keys)):
        k = w.store.keys[key]
        first_cursor(w.store, np.int64(key))  # state is written in the order of names
        if k.has_clock == 0:
            continue
        rank = rank_at(w.timeline.shared_ms, k.clock_ms)
        if not reach(w, o, np.int64(key), k.clock_ms, rank, next_ns[key], next_broker[key]):
            return np.int64(len(records) + key)
    return DONE
