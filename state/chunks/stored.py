"""Large messages that are stored and that a shared subscription has not got: who is stalled.

A released broker puts a chunk whose first chunk is gone back for replay, for ever; from then on the
subscription delivers nothing, and no record tells. What tells is a mark-delete position that stands
before such a chunk.
"""

from __future__ import annotations

import numpy as np

from state.chunks.acks import acknowledged
from state.chunks.layout import NOBODY, NULL, Int, Out, Record, World, before, compiled, inlined
from state.engine.tables import adopt, at, copy_fields, drop, each, find, release

MOST_PIECES = np.int64(10_000)
"""Stored chunks that a topic keeps at the end of a window."""
MOST_SUBSCRIPTIONS = np.int64(63)
"""Subscriptions of a topic that are followed: a bit each."""
ZERO, ONE = np.int64(0), np.int64(1)


@inlined
def may_stall(s: Record) -> bool:
    """Whether stored chunks matter to a subscription: it is shared, or its type is not known yet."""
    return bool(s.shared != 0 or (s.typed == 0 and s.mark_ledger != NULL))


@compiled
def is_passed(w: World, sub: Int, piece: Int) -> bool:
    """Whether a subscription has acknowledged a stored chunk."""
    s, e = w.subs[sub], w.pieces.rows[piece]
    if not before(s.mark_ledger, s.mark_entry, e.ledger_id, e.entry_id):
        return True
    return bool(acknowledged(w.subs, w.acks, w.acked, sub, e.ledger_id, e.entry_id))


@compiled
def bit_of(w: World, sub: Int) -> Int:
    """The bit of a subscription in `sent`, 0 if it has none; a new one is set nowhere."""
    s = w.subs[sub]
    if s.number < 0:
        used = ZERO
        for other in each(w.subs_of, s.key):
            if w.subs[other].number >= 0:
                used |= ONE << w.subs[other].number
        number = ZERO
        while used & (ONE << number) != 0:
            number += 1
        if number >= MOST_SUBSCRIPTIONS:
            return ZERO
        s.number = number
        clear_sent(w, sub)
    return ONE << s.number


@compiled
def clear_sent(w: World, sub: Int) -> None:
    """What a subscription has not acknowledged will be sent again."""
    s = w.subs[sub]
    if s.number < 0:
        return
    others = ~(ONE << s.number)
    for message in each(w.stored_of, s.key):
        for piece in each(w.pieces_of, message):
            w.pieces.rows[piece].sent &= others


# -- what is stored --------------------------------------------------------------------------


@inlined
def has_reader(w: World, key: Int) -> bool:
    """Whether a subscription of a topic may have to get stored chunks."""
    for sub in each(w.subs_of, key):
        if may_stall(w.subs[sub]):
            return True
    return False


@inlined
def index_newest(w: World) -> None:
    """Index the newest stored message of each uuid."""
    for message in range(w.stored.used[0]):
        e = w.stored.rows[message]
        w.newest.rows[at(w.newest, (e.key, e.uuid))].message = message


@inlined
def message_of(w: World, r: Record) -> Int:
    """The stored message that a record's chunk belongs to, perhaps a new one: a chunk 0 that is sent
    again begins a message of its own."""
    newest = w.newest.rows[at(w.newest, (r.key, r.uuid))]
    if newest.message >= 0 and r.chunk_id != 0:
        return newest.message
    place = at(w.stored, (r.key, r.ledger_id, r.entry_id))
    copy_fields(w.stored.rows[place], r)
    adopt(w.stored_of, r.key, place)
    newest.message = place
    return place


@compiled
def keep_piece(w: World, r: Record, size: Int) -> None:
    """Keep the chunk of a record until every shared subscription has acknowledged it."""
    if find(w.pieces, (r.key, r.ledger_id, r.entry_id)) >= 0:
        return
    k, message = w.keys[r.key], message_of(w, r)
    place = at(w.pieces, (r.key, r.ledger_id, r.entry_id))
    e = w.pieces.rows[place]
    copy_fields(e, r)
    e.message, e.size = message, size
    e.before_ledger, e.before_entry = k.added_ledger, k.added_entry
    adopt(w.pieces_of, message, place)
    k.pieces += 1
    for sub in each(w.subs_of, r.key):
        s = w.subs[sub]
        # a chunk can be sent before the record that it was stored
        is_sent = s.sent_ledger != NULL and not before(
            s.sent_ledger, s.sent_entry, r.ledger_id, r.entry_id
        )
        if is_sent and may_stall(s):
            e.sent |= bit_of(w, sub)


@compiled
def drop_stored(w: World, message: Int) -> None:
    """Forget a stored message."""
    e = w.stored.rows[message]
    for piece in each(w.pieces_of, message):
        x = w.pieces.rows[piece]
        w.keys[e.key].pieces -= 1
        release(w.pieces_of, message, piece)
        drop(w.pieces, (x.key, x.ledger_id, x.entry_id))
    newest = find(w.newest, (e.key, e.uuid))
    if newest >= 0 and w.newest.rows[newest].message == message:
        drop(w.newest, (e.key, e.uuid))
    release(w.stored_of, e.key, message)
    drop(w.stored, (e.key, e.ledger_id, e.entry_id))


@compiled
def is_waited_for(w: World, message: Int) -> bool:
    """Whether a subscription has not acknowledged all of a stored message; where it is not known
    what it acknowledges, whether it has not been sent all. A feed tells that a moment after the
    subscription came, so what was stored in the window waits for it."""
    key = w.stored.rows[message].key
    for sub in each(w.subs_of, key):
        s = w.subs[sub]
        bit = bit_of(w, sub) if may_stall(s) else ZERO
        if bit == 0:
            continue
        tells = s.acks_seen != 0 or s.mark_ledger != NULL
        for piece in each(w.pieces_of, message):
            e = w.pieces.rows[piece]
            is_open = tells or e.sent & bit == 0 or e.ts_wall_ms >= w.keys[key].window
            if is_open and not is_passed(w, sub, piece):
                return True
    return False


@inlined
def forget_stored(w: World, key: Int) -> None:
    """Forget all stored messages of a topic, and what its subscriptions were sent."""
    for message in each(w.stored_of, key):
        drop_stored(w, message)
    w.keys[key].added_ledger = NULL
    for sub in each(w.subs_of, key):
        w.subs[sub].sent_ledger = NULL


@inlined
def prune_stored(w: World, key: Int, is_stalled: bool) -> None:
    """Forget what every subscription has, and what is more than a topic keeps: of a stalled one the
    newest, else the oldest."""
    for message in each(w.stored_of, key):
        if not is_waited_for(w, message):
            drop_stored(w, message)
    while w.keys[key].pieces > MOST_PIECES:
        drop_stored(w, w.stored_of.last[key] if is_stalled else w.stored_of.first[key])


# -- what subscriptions do -------------------------------------------------------------------


@inlined
def mark_sent(w: World, r: Record, is_chunk: bool) -> None:
    """An entry was delivered to a consumer of a subscription."""
    s = w.subs[r.sub]
    s.sent_ms = r.ts_wall_ms
    if before(s.sent_ledger, s.sent_entry, r.ledger_id, r.entry_id):
        s.sent_ledger, s.sent_entry = r.ledger_id, r.entry_id
    piece = find(w.pieces, (r.key, r.ledger_id, r.entry_id)) if is_chunk else NOBODY
    if piece >= 0:
        w.pieces.rows[piece].sent |= bit_of(w, r.sub)


@inlined
def end_stall(s: Record, ledger: Int, entry: Int, is_cumulative: bool) -> None:
    """An acknowledgement of the chunk at which a subscription stopped lets it go on."""
    is_same = s.stall_ledger == ledger and s.stall_entry == entry
    if is_same or (is_cumulative and before(s.stall_ledger, s.stall_entry, ledger, entry)):
        s.stalled = 0


@compiled
def move_mark(w: World, sub: Int, ledger: Int, entry: Int) -> None:
    """Move mark-delete forward, past what was acknowledged behind it."""
    s = w.subs[sub]
    if before(s.mark_ledger, s.mark_entry, ledger, entry):
        s.mark_ledger, s.mark_entry = ledger, entry
    while before(
        s.cumulative_ledger, s.cumulative_entry, s.mark_ledger, s.mark_entry + 1
    ) and acknowledged(w.subs, w.acks, w.acked, sub, s.mark_ledger, s.mark_entry + 1):
        s.mark_entry += 1


@inlined
def take_cursor(w: World, r: Record) -> None:
    """Apply the position of a cursor."""
    ledger, entry = r.mark_ledger, r.mark_entry
    if r.sub < 0 or ledger == NULL:
        return
    s = w.subs[r.sub]
    if before(ledger, entry, s.told_ledger, s.told_entry):
        # set back: what follows is read again
        s.mark_ledger, s.mark_entry = ledger, entry
        s.sent_ledger, s.cumulative_ledger, s.stalled = NULL, NULL, 0
        s.epoch += 1
        clear_sent(w, r.sub)
    else:
        move_mark(w, r.sub, ledger, entry)
    s.told_ledger, s.told_entry, s.told_ms = ledger, entry, r.ts_wall_ms
    end_stall(s, ledger, entry, True)


@inlined
def end_cursor(w: World, sub: Int) -> None:
    """A subscription was removed."""
    if sub < 0:
        return
    s = w.subs[sub]
    s.mark_ledger = s.told_ledger = s.sent_ledger = s.sent_ms = NULL
    s.shared, s.typed, s.stalled, s.counted, s.consumers = 0, 0, 0, 0, 0
    clear_sent(w, sub)


@inlined
def count_consumer(w: World, sub: Int, came: bool) -> None:
    """A consumer of a subscription came or went."""
    s = w.subs[sub]
    s.counted = 1
    if came:
        s.consumers += 1
        return
    s.consumers = max(s.consumers - 1, ZERO)
    clear_sent(w, sub)
    if s.consumers == 0:
        s.sent_ledger = NULL


# -- who is stalled --------------------------------------------------------------------------


@inlined
def stands_at(s: Record, e: Record) -> bool:
    """Whether mark-delete is directly before a stored chunk."""
    if s.mark_ledger == e.ledger_id:
        return bool(s.mark_entry + 1 == e.entry_id)
    return bool(
        e.entry_id == 0
        and (
            e.before_ledger == NULL
            or not before(s.mark_ledger, s.mark_entry, e.before_ledger, e.before_entry)
        )
    )


@inlined
def has_lost_first(w: World, sub: Int, message: Int) -> bool:
    """Whether chunk 0 of a stored message is known to be acknowledged."""
    for piece in each(w.pieces_of, message):
        if w.pieces.rows[piece].chunk_id == 0 and is_passed(w, sub, piece):
            return True
    return False


@inlined
def first_left(w: World, key: Int, sub: Int) -> Int:
    """The stored chunk with the smallest position that a subscription has not acknowledged, NOBODY
    without."""
    found = NOBODY
    for message in each(w.stored_of, key):
        for piece in each(w.pieces_of, message):
            e, least = w.pieces.rows[piece], w.pieces.rows[max(found, ZERO)]
            is_earlier = before(e.ledger_id, e.entry_id, least.ledger_id, least.entry_id)
            if (found < 0 or is_earlier) and not is_passed(w, sub, piece):
                found = piece
    return found


@inlined
def leads(w: World, sub: Int, head: Int) -> bool:
    """Whether a stored chunk is the first of its message that a subscription has left, and not
    chunk 0."""
    h = w.pieces.rows[head]
    for piece in each(w.pieces_of, h.message):
        e = w.pieces.rows[piece]
        is_earlier = before(e.ledger_id, e.entry_id, h.ledger_id, h.entry_id)
        if (is_earlier or e.chunk_id < h.chunk_id) and not is_passed(w, sub, piece):
            return False
    return bool(h.chunk_id > 0)


@inlined
def handed_back(w: World, sub: Int, head: Int, now: Int) -> Int:
    """The last chunk of the message at mark-delete that a subscription was sent whole and has not
    acknowledged, while others wait: its client asks for that chunk alone. NOBODY if it is not so."""
    s, h, bit, last = w.subs[sub], w.pieces.rows[head], bit_of(w, sub), NOBODY
    for piece in each(w.pieces_of, h.message):
        e = w.pieces.rows[piece]
        if e.sent & bit == 0:
            return NOBODY
        if e.chunk_id == e.num_chunks - 1 and not is_passed(w, sub, piece):
            last = piece
    if last < 0 or s.mark_ledger == NULL or not stands_at(s, h):
        return NOBODY
    for message in each(w.stored_of, s.key):
        if message != h.message and is_behind(w, sub, message, last, now):
            return last
    return NOBODY


@inlined
def stopped_at(w: World, key: Int, sub: Int, now: Int) -> Int:
    """The stored chunk at which a subscription that was seen to stop stands; NOBODY: none."""
    s = w.subs[sub]
    head = find(w.pieces, (key, s.stall_ledger, s.stall_entry))
    if head < 0 or is_passed(w, sub, head) or is_new(w, head, now) or not leads(w, sub, head):
        return NOBODY
    return head


@inlined
def is_new(w: World, piece: Int, now: Int) -> bool:
    """Whether a chunk was stored only a moment ago."""
    return bool(now - w.pieces.rows[piece].ts_wall_ms <= w.settings[0].wait_ms)


@compiled
def stalled_at(w: World, key: Int, sub: Int, now: Int) -> Int:
    """The stored chunk at which a shared subscription has stopped, NOBODY if it has not: a chunk above
    0 that it has not been sent, at mark-delete, while nothing was delivered for a time; or the last
    one of a message that was sent and handed back.
    """
    s = w.subs[sub]
    if s.shared == 0 or (s.counted != 0 and s.consumers == 0):
        return NOBODY
    if s.sent_ms != NULL and now - s.sent_ms <= w.settings[0].wait_ms:
        return NOBODY
    if s.stalled != 0:
        return stopped_at(w, key, sub, now)
    head = first_left(w, key, sub)
    if head < 0 or is_new(w, head, now):
        return NOBODY
    if not leads(w, sub, head):
        return handed_back(w, sub, head, now)
    h = w.pieces.rows[head]
    if h.sent & bit_of(w, sub) != 0:
        return NOBODY
    if s.mark_ledger != NULL:
        return head if stands_at(s, h) else NOBODY
    return head if has_lost_first(w, sub, h.message) else NOBODY


@inlined
def count_stalls(w: World, key: Int, now: Int) -> Int:
    """How many subscriptions of a topic are stalled."""
    n = ZERO
    for sub in each(w.subs_of, key):
        if stalled_at(w, key, sub, now) >= 0:
            n += 1
    return n


@compiled
def is_behind(w: World, sub: Int, message: Int, head: Int, now: Int) -> bool:
    """Whether a stored message waits for a stalled subscription: the one at which it stands, and
    those that are whole for a time and whose last chunk it has not been sent."""
    if w.pieces.rows[head].message == message:
        return True
    bit = bit_of(w, sub)
    for piece in each(w.pieces_of, message):
        e = w.pieces.rows[piece]
        is_unsent_end = e.chunk_id == e.num_chunks - 1 and e.sent & bit == 0
        if is_unsent_end and not is_new(w, piece, now) and not is_passed(w, sub, piece):
            return True
    return False


@compiled
def is_left(w: World, sub: Int, piece: Int, head: Int) -> bool:
    """Whether a stalled subscription waits for a stored chunk: for none that it has acknowledged,
    and of the message at which it stands for none before that chunk."""
    e, h = w.pieces.rows[piece], w.pieces.rows[head]
    is_before = e.message == h.message and e.chunk_id < h.chunk_id
    return bool(not is_before and not is_passed(w, sub, piece))


@inlined
def next_id(w: World, sub: Int, message: Int, head: Int, least: Int) -> Int:
    """The smallest chunk id from `least` on that is stored and left, NOBODY without."""
    found = NOBODY
    for piece in each(w.pieces_of, message):
        id_ = w.pieces.rows[piece].chunk_id
        if id_ >= least and (found < 0 or id_ < found) and is_left(w, sub, piece, head):
            found = np.int64(id_)
    return found


@inlined
def list_message(
    w: World, o: Out, sub: Int, message: Int, head: Int, window: Int, order: Int
) -> None:
    """A row about a stored message of a stalled subscription."""
    n, h = o.used[0], w.pieces.rows[head]
    m = o.missing[n.missing]
    n.missing += 1
    copy_fields(m, w.stored.rows[message])
    m.window, m.sub, m.consumer, m.order = window, sub, NOBODY, order
    m.stall_ledger, m.stall_entry = h.ledger_id, h.entry_id
    m.first_ledger, m.last_ledger, m.buffered = NULL, NULL, 0
    for piece in each(w.pieces_of, message):
        if is_left(w, sub, piece, head):
            add_piece(m, w.pieces.rows[piece])
    list_gone(w, o, m, message, head)


@inlined
def add_piece(m: Record, x: Record) -> None:
    """Add a stored chunk to the row about its message."""
    if m.first_ledger == NULL:
        m.first_ms = x.ts_wall_ms
    if m.first_ledger == NULL or before(x.ledger_id, x.entry_id, m.first_ledger, m.first_entry):
        m.first_ledger, m.first_entry = x.ledger_id, x.entry_id
    if before(m.last_ledger, m.last_entry, x.ledger_id, x.entry_id):
        m.last_ledger, m.last_entry = x.ledger_id, x.entry_id
    m.last_ms = x.ts_wall_ms
    if x.size != NULL:
        m.buffered += x.size


@inlined
def list_gone(w: World, o: Out, m: Record, message: Int, head: Int) -> None:
    """The chunks of a stored message that a stalled subscription cannot get any more, and the first
    one for which it waits."""
    n = o.used[0]
    m.gone_start, m.gone = n.gone, 0
    least, here = ZERO, next_id(w, m.sub, message, head, ZERO)
    m.next_chunk = here
    while here >= 0:
        if here > least:
            if m.gone == 0:
                m.next_chunk = least
            o.gone[n.gone, 0], o.gone[n.gone, 1] = least, here - 1
            n.gone += 1
            m.gone += 1
        least = here + 1
        here = next_id(w, m.sub, message, head, least)


@inlined
def list_stalled(w: World, o: Out, key: Int, now: Int, window: Int) -> Int:
    """Rows about the messages of every stalled subscription; returns how many."""
    n = ZERO
    for sub in each(w.subs_of, key):
        head = stalled_at(w, key, sub, now)
        if head < 0:
            continue
        for message in each(w.stored_of, key):
            if is_behind(w, sub, message, head, now):
                list_message(w, o, sub, message, head, window, n)
                n += 1
    return n
