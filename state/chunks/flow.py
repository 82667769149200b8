"""Records and timers of a shard in their order."""

from __future__ import annotations

import numpy as np

from state.chunks import layout as L
from state.chunks.consumer import arm, deliver, end_contexts, expire, is_closed, vanish
from state.chunks.dispatch import dispatch_shared, unbind, unbind_all
from state.chunks.layout import (
    NOBODY,
    NULL,
    Array,
    Int,
    Out,
    Record,
    Rows,
    World,
    before,
    compiled,
    inlined,
)
from state.chunks.markers import let_go_unread, play_marker, release_marked
from state.chunks.stored import (
    count_consumer,
    count_stalls,
    drop_stored,
    end_cursor,
    end_stall,
    forget_stored,
    has_reader,
    index_newest,
    is_waited_for,
    keep_piece,
    mark_sent,
    may_stall,
    move_mark,
    take_cursor,
)
from state.chunks.timers import earliest, set_timer, touch
from state.chunks.windows import LARGEST, close_window
from state.engine.broker_changes import GAPS, comes_late, rank_at, turn_after, until
from state.engine.tables import Indexed, at, each, find, is_short
from state.events import KIND_INDEX

CREATED = np.int64(KIND_INDEX["consumer_created"])
CLOSED = np.int64(KIND_INDEX["consumer_closed"])
ENTRY_ADDED = np.int64(KIND_INDEX["entry_added"])
DISPATCH = np.int64(KIND_INDEX["dispatch"])
ACK = np.int64(KIND_INDEX["ack"])
CURSOR = np.int64(KIND_INDEX["cursor_state"])
CURSOR_DELETED = np.int64(KIND_INDEX["cursor_deleted"])
ROWS_PER_CHUNK = np.int64(6)
DONE = np.int64(-1)
ZERO, ONE = np.int64(0), np.int64(1)


# -- room ------------------------------------------------------------------------------------


@inlined
def _count(t: Indexed) -> Int:
    return t.used[0] - t.used[1]


@compiled
def lacks_room(w: World, o: Out, chunks: Int, listed: Int, gone: Int) -> bool:
    """Whether the rows of this many chunks, or of one timer, may not fit; `listed` and `gone` are how
    many stalled messages and missing chunks the window that ends may have."""
    n, need, contexts, buffered = o.used[0], o.need[0], _count(w.contexts), _count(w.buffered)
    more = contexts + _count(w.held) + ROWS_PER_CHUNK * (chunks + 1)
    need.rows = n.rows + more
    need.positions = n.positions + buffered + more + contexts
    need.messages = n.messages + chunks + 1
    need.parts = n.parts + buffered + chunks + 1
    need.levels = n.levels + len(w.consumers)
    need.missing = n.missing + contexts + listed
    need.windows = n.windows + 1
    need.gone = n.gone + gone
    return bool(
        need.rows > len(o.rows)
        or need.positions > len(o.positions)
        or need.messages > len(o.messages)
        or need.parts > len(o.parts)
        or need.levels > len(o.levels)
        or need.missing > len(o.missing)
        or need.windows > len(o.windows)
        or need.gone > len(o.gone)
    )


@inlined
def lacks_state(w: World, chunks: Int) -> bool:
    """Whether a table may be short of what this many chunks add."""
    return bool(
        is_short(w.contexts, chunks)
        or is_short(w.buffered, chunks)
        or is_short(w.fifo, chunks)
        or is_short(w.bindings, chunks)
        or is_short(w.held, chunks)
        or is_short(w.stored, chunks)
        or is_short(w.newest, chunks)
        or is_short(w.pieces, chunks)
        or is_short(w.acks, chunks)
    )


# -- time ------------------------------------------------------------------------------------


@inlined
def fire(w: World, o: Out, key: Int, consumer: Int, due: Int) -> None:
    """Fire the timer of a consumer."""
    e = w.consumers[consumer]
    set_timer(w, key, due, consumer)
    if is_closed(e):
        if e.contexts > 0:
            touch(w, key, due)
        vanish(w, o, w.timer[0])
    else:
        expire(w, o, w.timer[0])


@compiled
def advance(w: World, o: Out, key: Int, until_ms: Int) -> bool:
    """Fire timers due before `until_ms` and write the windows that have ended by then; False if
    there was no room to continue.
    """
    p, k = w.settings[0], w.keys[key]
    while True:
        end = k.window + p.window_ms if k.open != 0 else LARGEST
        due = k.due_ms if k.due_ms != NULL else LARGEST
        if due >= until_ms and end > until_ms:
            return True
        stalls = count_stalls(w, key, end) if end <= due else ZERO
        if lacks_room(w, o, ONE, stalls * _count(w.stored), stalls * k.pieces):
            return False
        if end <= due:
            set_timer(w, key, end, NOBODY)
            # chunks that no marker has read for so long are forgotten
            let_go_unread(w, o, key, p.idle_ms, L.ORPHANED)
            close_window(w, o, key, end)
            continue
        consumer = earliest(w, key, due)
        if consumer >= 0 and k.due_ms <= due:
            fire(w, o, key, consumer, due)
            earliest(w, key, due)


# -- gaps ------------------------------------------------------------------------------------


@inlined
def next_to_lose(w: World, key: Int) -> Int:
    """The consumer of a topic with the earliest first chunk among those with contexts, NOBODY without
    one.
    """
    found = NOBODY
    for consumer in each(w.consumers_of, key):
        e = w.consumers[consumer]
        has_any = e.contexts > 0 or e.entries > 0 or e.counter != 0
        if has_any and (found < 0 or e.start_order < w.consumers[found].start_order):
            found = consumer
    return found


@compiled
def lose_key(w: World, o: Out, key: Int, at_ms: Int) -> bool:
    """Apply a gap of the topic's broker: contexts of its consumers end, bindings and chunks that wait
    for a marker are forgotten; False if there was no room.
    """
    if lacks_room(w, o, ONE, ZERO, ZERO):
        return False
    consumer = next_to_lose(w, key)
    while consumer >= 0:
        set_timer(w, key, at_ms, consumer)
        end_contexts(w, o, w.timer[0], L.LOST_TO_SIGHT)
        consumer = next_to_lose(w, key)
    unbind_all(w, key)
    forget_stored(w, key)
    set_timer(w, key, at_ms, NOBODY)
    let_go_unread(w, o, key, -LARGEST, L.LOST_TO_SIGHT)
    return True


@inlined
def look(w: World, key: Int, turn: Int) -> None:
    """The effect of a turn on what a topic knows: messages that began before it."""
    t = w.turns[turn]
    if t.start == GAPS:
        w.links[key].blind_ms = until(t.at_ms, w.settings[0].blind_ms)


@compiled
def put_behind(w: World, key: Int, place: Int, rank: Int) -> None:
    """Set the broker of a topic, past the turns before a rank."""
    e = w.links[key]
    e.place, e.blind_ms = place, NULL
    e.turn = turn_after(w.turns, w.turn_start, place, rank)
    for turn in range(w.turn_start[place], e.turn):
        look(w, key, turn)


@compiled
def reach(w: World, o: Out, key: Int, to_ms: Int, rank: Int) -> bool:
    """Move a topic to a time, past the gaps before a rank; False if there was no room."""
    e = w.links[key]
    if e.late_ms != NULL:
        if not lose_key(w, o, key, e.late_ms):
            return False
        e.late_ms = NULL
    end = w.turn_start[e.place + 1]
    while w.keys[key].last_ms != NULL and e.turn < end and w.turns[e.turn].rank < rank:
        at_ms = w.turns[e.turn].at_ms
        if not advance(w, o, key, at_ms) or not lose_key(w, o, key, at_ms):
            return False
        look(w, key, e.turn)
        e.turn += 1
    return advance(w, o, key, to_ms)


# -- records ---------------------------------------------------------------------------------


@inlined
def open_consumer(w: World, r: Record) -> None:
    """Open a consumer, perhaps again."""
    p, e = w.settings[0], w.consumers[r.consumer]
    if e.known == 0 or e.open == 0:
        e.opened_order = p.next_order
        p.next_order += 1
        e.known, e.open, e.closed_ms = 1, 1, NULL
        arm(p, w.keys[e.key], e, r.ts_wall_ms)


@inlined
def close_consumer(w: World, o: Out, r: Record) -> None:
    """Close a consumer; its contexts stay for an expiry, its bindings do not."""
    p, e = w.settings[0], w.consumers[r.consumer]
    if e.known == 0 or e.open == 0:
        return
    e.open = 0
    unbind(w, r.consumer)
    if p.expiry_ms <= 0:
        if e.contexts > 0:
            touch(w, r.key, r.ts_wall_ms)
        vanish(w, o, r)
        return
    e.closed_ms, e.closed_order = r.ts_wall_ms, p.next_order
    p.next_order += 1
    arm(p, w.keys[e.key], e, r.ts_wall_ms)


@inlined
def take_consumer(w: World, o: Out, r: Record) -> None:
    """Apply that a consumer came or went."""
    came = r.event_type == CREATED
    if r.sub >= 0 and r.shared >= 0:
        w.subs[r.sub].shared, w.subs[r.sub].typed = r.shared, 1
    if r.sub >= 0:
        count_consumer(w, r.sub, came)
    if r.consumer >= 0 and came:
        open_consumer(w, r)
    elif r.consumer >= 0:
        close_consumer(w, o, r)


@inlined
def take_dispatch(w: World, o: Out, r: Record) -> None:
    """Apply a delivered entry: a chunk, a marker, or an ordinary message, which is skipped."""
    p, is_chunk, is_marker = w.settings[0], r.num_chunks > 1, r.ids_end > r.ids_begin
    if r.sub < 0:
        return
    s = w.subs[r.sub]
    if r.shared >= 0:
        s.shared, s.typed = r.shared, 1
    if not is_chunk and not is_marker:
        if p.stalls != 0 and s.stalled == 0 and may_stall(s):
            mark_sent(w, r, False)
        return
    w.keys[r.key].chunked = 1
    if not is_chunk and (s.shared == 0 or p.mode != L.MARKER or s.stalled != 0):
        return
    open_consumer(w, r)
    if s.last_chunk_ms != NULL and r.ts_wall_ms - s.last_chunk_ms >= p.idle_ms:
        s.epoch += 1
        s.cumulative_ledger = NULL
    s.last_chunk_ms = r.ts_wall_ms
    if not is_chunk:
        play_marker(w, o, r)
    elif s.shared != 0:
        dispatch_shared(w, o, r)
    else:
        touch(w, r.key, r.ts_wall_ms)
        deliver(w, o, r, o.used[0].rows)


@inlined
def take_ack(w: World, r: Record) -> None:
    """Apply an acknowledgement of a subscription to which chunks were delivered."""
    if r.sub < 0:
        return
    s, ledger, entry = w.subs[r.sub], r.ledger_id, r.entry_id
    is_cumulative = r.ack_cumulative == 1
    end_stall(s, ledger, entry, is_cumulative)
    follows = s.mark_ledger == ledger and s.mark_entry + 1 == entry
    if s.mark_ledger != NULL and (follows or is_cumulative):
        move_mark(w, r.sub, ledger, entry)
    if s.last_chunk_ms == NULL or r.ts_wall_ms - s.last_chunk_ms >= w.settings[0].idle_ms:
        return
    if not is_cumulative:
        at(w.acks, (r.sub, s.epoch, ledger, entry))
    elif before(s.cumulative_ledger, s.cumulative_entry, ledger, entry):
        s.cumulative_ledger, s.cumulative_entry = ledger, entry
    s.acks_seen = 1
    if s.mark_ledger != NULL:
        move_mark(w, r.sub, s.mark_ledger, s.mark_entry)
    piece = find(w.pieces, (r.key, ledger, entry))
    if piece >= 0 and not is_waited_for(w, w.pieces.rows[piece].message):
        drop_stored(w, w.pieces.rows[piece].message)
    release_marked(w, r)


@inlined
def take_added(w: World, r: Record) -> None:
    """Apply a persisted entry: chunks count for their topic, and are followed to shared
    subscriptions."""
    k, is_chunk = w.keys[r.key], r.num_chunks > 1
    if is_chunk and w.settings[0].stalls != 0 and has_reader(w, r.key):
        keep_piece(w, r, r.entry_bytes)
    k.added_ledger, k.added_entry = r.ledger_id, r.entry_id
    if not is_chunk:
        return
    touch(w, r.key, r.ts_wall_ms)
    k.touched = k.chunked = 1
    k.chunks += 1
    k.bytes += r.entry_bytes
    if r.chunk_id == 0:
        k.firsts += 1
    if r.sender >= 0 and w.producers[r.sender].window != k.window:
        w.producers[r.sender].window = k.window
        k.producers += 1


@inlined
def take(w: World, o: Out, r: Record) -> None:
    """Apply one record, once its topic has reached its time."""
    k, kind = w.keys[r.key], r.event_type
    if k.last_ms == NULL or w.links[r.key].place != r.place:
        put_behind(w, r.key, r.place, r.rank)
    if kind == DISPATCH:
        take_dispatch(w, o, r)
    elif kind == ACK:
        take_ack(w, r)
    elif kind == ENTRY_ADDED:
        take_added(w, r)
    elif kind == CURSOR:
        take_cursor(w, r)
    elif kind == CURSOR_DELETED:
        end_cursor(w, r.sub)
    elif kind == CREATED or kind == CLOSED:
        take_consumer(w, o, r)
    k.last_ms, k.last_ns = r.ts_wall_ms, r.ts_mono_ns
    k.broker, k.source_feed = r.broker, r.source_feed


@compiled
def judge(w: World, o: Out, records: Rows, begin: Int) -> Int:
    """Judge records from `begin` on; returns the first that there was no room for, or DONE."""
    for i in range(begin, len(records)):
        r = records[i]
        chunks, link = r.ids_end - r.ids_begin + 1, w.links[r.key]
        link.next_ns, link.next_broker = r.ts_mono_ns, r.broker
        if not reach(w, o, r.key, r.ts_wall_ms, r.rank):
            return i
        if lacks_state(w, chunks) or lacks_room(w, o, chunks, ZERO, ZERO):
            return i
        take(w, o, r)
    return DONE


@compiled
def move_on(w: World, o: Out, begin: Int) -> Int:
    """Move every topic from `begin` on to its clock; returns the first without room, or DONE."""
    clock_ms: Int
    clock_ms, rank = NULL, ZERO
    for key in range(begin, len(w.keys)):
        k = w.keys[key]
        if k.has_clock == 0:
            continue
        if k.clock_ms != clock_ms:
            clock_ms = k.clock_ms
            rank = rank_at(w.shared_ms, clock_ms)
        if not reach(w, o, np.int64(key), clock_ms, rank):
            return key
    return DONE


@compiled
def prepare(w: World, begin_ms: Array) -> None:
    """Index what was read, and move every topic past the gaps that are before its clock at the
    beginning of the call (NULL: none); a gap that came with this call applies at the clock.
    """
    index_newest(w)
    at_ms, rank = NULL, ZERO
    for key in range(len(w.keys)):
        e, begin = w.links[key], begin_ms[key]
        e.late_ms, e.blind_ms = NULL, NULL
        if begin == NULL or w.keys[key].last_ms == NULL:
            continue
        if begin != at_ms:
            at_ms = begin
            rank = rank_at(w.shared_ms, begin)
        put_behind(w, np.int64(key), e.place, rank)
        if comes_late(w.turns, w.turn_start, e.place, e.turn, GAPS):
            e.late_ms = begin
