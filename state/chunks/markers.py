"""Chunks that wait for their marker on a shared subscription (shared_mode=marker)."""

from __future__ import annotations

from state.chunks import layout as L
from state.chunks.acks import acknowledged
from state.chunks.consumer import add_position, deliver, new_row
from state.chunks.layout import NOBODY, NULL, Int, Out, Record, World, before, compiled, inlined
from state.chunks.timers import touch
from state.engine.tables import adopt, at, copy_fields, drop, each, find, release


@inlined
def hold(w: World, r: Record) -> None:
    """Keep a chunk until its marker has been acknowledged."""
    place = find(w.held, (r.sub, r.ledger_id, r.entry_id))
    if place >= 0:
        release(w.held_of, r.key, place)
        r.marker_ledger, r.marker_entry = (
            w.held.rows[place].marker_ledger,
            w.held.rows[place].marker_entry,
        )
    place = at(w.held, (r.sub, r.ledger_id, r.entry_id))
    h = w.held.rows[place]
    copy_fields(h, r)
    h.since_ms = h.used_ms = r.ts_wall_ms
    adopt(w.held_of, r.key, place)
    touch(w, r.key, r.ts_wall_ms)


@compiled
def drop_held(w: World, place: Int) -> None:
    """Forget a chunk that is held."""
    h = w.held.rows[place]
    release(w.held_of, h.key, place)
    drop(w.held, (h.sub, h.ledger_id, h.entry_id))


@inlined
def play_marker(w: World, o: Out, r: Record) -> None:
    """Deliver the chunks that a marker lists, in its order, at each of its deliveries."""
    if acknowledged(w.subs, w.acks, w.acked, r.sub, r.ledger_id, r.entry_id):
        return
    c = w.timer[0]
    for i in range(r.ids_begin, r.ids_end):
        place = find(w.held, (r.sub, w.ids[i, 0], w.ids[i, 1]))
        if place >= 0:
            h = w.held.rows[place]
            h.marker_ledger, h.marker_entry = r.ledger_id, r.entry_id
            h.used_ms = r.ts_wall_ms
            copy_fields(c, r)
            copy_fields(c, h)
            touch(w, r.key, r.ts_wall_ms)
            deliver(w, o, c, o.used[0].rows)


@inlined
def release_marked(w: World, r: Record) -> None:
    """Release a marker that was acknowledged, with the chunks that it lists: they are not read
    again.
    """
    for place in each(w.held_of, r.key):
        h = w.held.rows[place]
        is_same = h.marker_ledger == r.ledger_id and h.marker_entry == r.entry_id
        is_before = h.marker_ledger != NULL and before(
            h.marker_ledger, h.marker_entry, r.ledger_id, r.entry_id
        )
        if h.sub == r.sub and (is_same or (r.ack_cumulative == 1 and is_before)):
            drop_held(w, place)


@inlined
def let_go(w: World, o: Out, place: Int, outcome: Int) -> None:
    """Stop waiting for the marker of a chunk, at the time of the timer; reported unless the chunk was
    acknowledged."""
    c, h = w.timer[0], w.held.rows[place]
    if not acknowledged(w.subs, w.acks, w.acked, h.sub, h.ledger_id, h.entry_id):
        copy_fields(c, h)
        c.consumer = NOBODY
        row = new_row(w.keys, o, c, outcome, L.NO_DEFECT)
        row.age_ms = c.ts_wall_ms - h.since_ms
        if outcome == L.ORPHANED:
            add_position(o, h.ledger_id, h.entry_id)
            row.orphaned = 1
    drop_held(w, place)


@compiled
def let_go_unread(w: World, o: Out, key: Int, unread_ms: Int, outcome: Int) -> None:
    """Stop waiting for the markers of chunks that none has read for a time, at the time of the
    timer."""
    now = w.timer[0].ts_wall_ms
    for place in each(w.held_of, key):
        if now - w.held.rows[place].used_ms >= unread_ms:
            let_go(w, o, place, outcome)
