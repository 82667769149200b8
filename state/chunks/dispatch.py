"""Chunks on a shared subscription: the consumer to which each of them is delivered."""

from __future__ import annotations

import numpy as np

from state.chunks import layout as L
from state.chunks.acks import acknowledged
from state.chunks.consumer import add_position, deliver, finish, is_blind, is_last, new_row
from state.chunks.layout import NOBODY, Int, Out, Record, World, compiled, inlined
from state.chunks.markers import hold
from state.chunks.stored import keep_piece, mark_sent
from state.chunks.timers import touch
from state.engine.tables import at, drop, each, find

ZERO = np.int64(0)


# -- bindings --------------------------------------------------------------------------------


@inlined
def bind(w: World, r: Record, consumer: Int) -> None:
    """Bind the uuid of a chunk to a consumer."""
    b = w.bindings.rows[at(w.bindings, (r.sub, r.uuid))]
    b.consumer, b.used_ms = consumer, r.ts_wall_ms


@inlined
def bound(w: World, r: Record) -> Int:
    """The consumer to which the uuid of a chunk is bound, NOBODY without one. A binding that was not
    used for idle_state_ms is forgotten.
    """
    place = find(w.bindings, (r.sub, r.uuid))
    if place < 0:
        return NOBODY
    b = w.bindings.rows[place]
    if r.ts_wall_ms - b.used_ms >= w.settings[0].idle_ms:
        drop(w.bindings, (r.sub, r.uuid))
        return NOBODY
    b.used_ms = r.ts_wall_ms
    return b.consumer


@inlined
def unbind(w: World, consumer: Int) -> None:
    """Forget the bindings to a consumer."""
    for i in range(w.bindings.used[0]):
        b = w.bindings.rows[i]
        if b.sub >= 0 and b.consumer == consumer:
            drop(w.bindings, (b.sub, b.uuid))


@inlined
def unbind_all(w: World, key: Int) -> None:
    """Forget the bindings of a topic."""
    for i in range(w.bindings.used[0]):
        b = w.bindings.rows[i]
        if b.sub >= 0 and w.subs[b.sub].key == key:
            drop(w.bindings, (b.sub, b.uuid))


# -- who gets a chunk ------------------------------------------------------------------------


@compiled
def opened_before(w: World, key: Int, sub: Int, order: Int) -> Int:
    """How many open consumers of a subscription were opened before a number."""
    count = ZERO
    for consumer in each(w.consumers_of, key):
        x = w.consumers[consumer]
        if x.sub == sub and x.open != 0 and x.opened_order < order:
            count += 1
    return count


@inlined
def picked(w: World, r: Record) -> Int:
    """The open consumer that a hash selects, by order of opening; without one that of the record."""
    count = ZERO
    for consumer in each(w.consumers_of, r.key):
        e = w.consumers[consumer]
        if e.sub == r.sub and e.open != 0:
            count += 1
    for consumer in each(w.consumers_of, r.key):
        e = w.consumers[consumer]
        rank = opened_before(w, r.key, r.sub, e.opened_order)
        if e.sub == r.sub and e.open != 0 and rank == r.pick % count:
            return consumer
    return r.consumer


@compiled
def orphan(w: World, o: Out, r: Record) -> None:
    """Handle a chunk without a bound consumer, or one that a stalled subscription does not deliver."""
    p, begin = w.settings[0], o.used[0].rows
    touch(w, r.key, r.ts_wall_ms)
    row = new_row(w.keys, o, r, L.SHARED_ORPHAN, L.NO_DEFECT)
    if p.orphan == L.ACK_SKIP and w.subs[r.sub].stalled == 0:
        add_position(o, r.ledger_id, r.entry_id)
        row.acks = 1
    if p.stalls != 0:
        keep_piece(w, r, r.payload_bytes if r.payload_bytes != L.NULL else r.entry_bytes)
    finish(o, w.consumers[r.consumer], begin, ZERO)


@inlined
def consumer_of(w: World, r: Record) -> Int:
    """The consumer to which a chunk is delivered, which is bound to its uuid; NOBODY without one."""
    p, consumer = w.settings[0], bound(w, r)
    if consumer >= 0:
        return consumer
    if p.mode == L.HASH:
        consumer = picked(w, r)
    elif r.chunk_id == 0 or is_blind(w.links[r.key], r.ts_wall_ms):
        # the first chunk may have bound it in the gap, to the consumer of this record
        consumer = r.consumer
    if consumer >= 0:
        bind(w, r, consumer)
    return consumer


@inlined
def dispatch_shared(w: World, o: Out, r: Record) -> None:
    """Deliver a chunk on a shared subscription to the consumer that gets it, if any."""
    p, s = w.settings[0], w.subs[r.sub]
    if s.stalled != 0:
        orphan(w, o, r)
        return
    if p.mode == L.MARKER:
        if acknowledged(w.subs, w.acks, w.acked, r.sub, r.ledger_id, r.entry_id):
            touch(w, r.key, r.ts_wall_ms)
            deliver(w, o, r, o.used[0].rows)
        else:
            hold(w, r)
        return
    begin, consumer = o.used[0].rows, consumer_of(w, r)
    if consumer < 0:
        if p.orphan == L.STALL:
            s.stalled, s.stall_ledger, s.stall_entry = 1, r.ledger_id, r.entry_id
        orphan(w, o, r)
        if p.orphan != L.DISPATCH_ANY:
            return
        consumer = r.consumer
    if is_last(r):
        drop(w.bindings, (r.sub, r.uuid))
    r.consumer = consumer
    touch(w, r.key, r.ts_wall_ms)
    if p.stalls != 0:
        mark_sent(w, r, True)
    deliver(w, o, r, begin)
