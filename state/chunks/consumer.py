"""The consumer's side of chunked messages: contexts, FIFO and counter (PIP-37, Pulsar 4.2.4).

`deliver` judges one chunk, `expire` runs an expiry pass, `vanish` ends a consumer that has not
returned. `c` is the chunk or timer that is being judged.
"""

from __future__ import annotations

import numpy as np

from state.chunks import layout as L
from state.chunks.acks import acknowledged
from state.chunks.crc import combine
from state.chunks.layout import (
    NOBODY,
    NULL,
    Int,
    Out,
    Record,
    Rows,
    World,
    compiled,
    inlined,
)
from state.engine.tables import Indexed, adopt, at, copy_fields, drop, each, find, release

ZERO, ONE = np.int64(0), np.int64(1)


# -- rows ------------------------------------------------------------------------------------


@compiled
def new_row(keys: Rows, o: Out, c: Record, outcome: Int, defect: Int) -> Record:
    """A row about a chunk or timer."""
    n, k = o.used[0], keys[c.key]
    if k.row_ms != c.ts_wall_ms:
        k.row_ms, k.row_no = c.ts_wall_ms, 0
    row = o.rows[n.rows]
    n.rows += 1
    copy_fields(row, c)
    row.row_no = k.row_no
    k.row_no += 1
    row.outcome, row.defect, row.age_ms = outcome, defect, NULL
    row.start, row.acks, row.tracked, row.orphaned = n.positions, 0, 0, 0
    row.permits, row.counter, row.contexts, row.buffered = 0, 0, 0, 0
    return row


@compiled
def add_position(o: Out, ledger: Int, entry: Int) -> None:
    """Write a position."""
    n = o.used[0]
    o.positions[n.positions, 0], o.positions[n.positions, 1] = ledger, entry
    n.positions += 1


@compiled
def add_ids(w: World, o: Out, context: Int, ledger: Int, entry: Int) -> Int:
    """Write the positions of a context except one (NULL: none), which its new delivery decides;
    returns how many."""
    e, begin = w.contexts.rows[context], o.used[0].positions
    for chunk_id in range(e.last + 1):
        b = chunk_of(w.buffered, context, np.int64(chunk_id))
        if b.ledger_id != ledger or b.entry_id != entry:
            add_position(o, b.ledger_id, b.entry_id)
    if e.more_ledger != NULL and (e.more_ledger != ledger or e.more_entry != entry):
        add_position(o, e.more_ledger, e.more_entry)
    return o.used[0].positions - begin


@compiled
def add_marker(o: Out, e: Record) -> Int:
    """Write the position of the marker of a context, which has the outcome of its chunks; returns
    the number of positions.
    """
    if e.marker_ledger == NULL:
        return ZERO
    add_position(o, e.marker_ledger, e.marker_entry)
    return ONE


@compiled
def finish(o: Out, e: Record, begin: Int, permits: Int) -> None:
    """Set the values of the consumer after a chunk or timer on all of its rows, and permits on the
    last."""
    end = o.used[0].rows
    for i in range(begin, end):
        row = o.rows[i]
        row.counter, row.contexts, row.buffered = e.counter, e.contexts, e.buffered
    if end > begin:
        o.rows[end - 1].permits = permits


@inlined
def about_context(w: World, row: Record, context: Int) -> None:
    """Make a row about a context instead of the chunk: its uuid and its last chunk."""
    e = w.contexts.rows[context]
    row.uuid, row.num_chunks, row.chunk_id = e.uuid, e.num_chunks, e.last
    if e.last >= 0:
        newest = chunk_of(w.buffered, context, e.last)
        row.ledger_id, row.entry_id = newest.ledger_id, newest.entry_id
    elif e.more_ledger != NULL:
        row.chunk_id, row.ledger_id, row.entry_id = 0, e.more_ledger, e.more_entry
    row.age_ms = row.ts_wall_ms - e.first_ms


# -- fifo ------------------------------------------------------------------------------------


@inlined
def push(w: World, consumer: Int, hash_: Int) -> None:
    """Put a uuid at the end of the fifo."""
    p = w.settings[0]
    place = at(w.fifo, (p.next_order,))
    p.next_order += 1
    w.fifo.rows[place].consumer, w.fifo.rows[place].hash = consumer, hash_
    adopt(w.fifo_of, consumer, place)
    w.consumers[consumer].entries += 1


@compiled
def take_out(w: World, consumer: Int, place: Int) -> None:
    """Take one element out of the fifo."""
    release(w.fifo_of, consumer, place)
    drop(w.fifo, (w.fifo.rows[place].order,))
    w.consumers[consumer].entries -= 1


@compiled
def clear_fifo(w: World, consumer: Int) -> None:
    """Take all elements out of the fifo."""
    for place in each(w.fifo_of, consumer):
        take_out(w, consumer, place)


@inlined
def leave_fifo(w: World, consumer: Int, hash_: Int) -> None:
    """Take the newest occurrence of a uuid out of the fifo."""
    place = w.fifo_of.last[consumer]
    while place >= 0:
        if w.fifo.rows[place].hash == hash_:
            take_out(w, consumer, place)
            return
        place = w.fifo_of.before[place]


@compiled
def take_head(w: World, consumer: Int) -> Int:
    """The first context of the uuid at the head of the fifo, NOBODY without one. The fifo keeps no
    uuids, but their hashes."""
    wanted = w.fifo.rows[w.fifo_of.first[consumer]].hash
    for context in each(w.contexts_of, consumer):
        if w.contexts.rows[context].hash == wanted:
            return context
    return NOBODY


# -- contexts --------------------------------------------------------------------------------


@compiled
def chunk_of(buffered: Indexed, context: Int, chunk_id: Int) -> Record:
    """A chunk of a context."""
    return buffered.rows[find(buffered, (context, chunk_id))]


@inlined
def size_of(c: Record) -> Int:
    """The size of a chunk's payload, NULL if it is not known."""
    return c.payload_bytes if c.payload_bytes != NULL else c.entry_bytes


@inlined
def create(w: World, c: Record) -> Int:
    """A context for a chunk 0."""
    place = at(w.contexts, (c.consumer, c.uuid))
    e = w.contexts.rows[place]
    copy_fields(e, c)
    e.first_ms = e.last_ms = c.ts_wall_ms
    adopt(w.contexts_of, c.consumer, place)
    w.consumers[c.consumer].contexts += 1
    push(w, c.consumer, e.hash)
    return place


@compiled
def forget(w: World, context: Int) -> None:
    """Remove a context and its chunks; the caller updates counter and FIFO."""
    e = w.contexts.rows[context]
    owner = w.consumers[e.consumer]
    owner.contexts -= 1
    owner.buffered -= e.buffered
    for chunk_id in range(e.last + 1):
        drop(w.buffered, (context, np.int64(chunk_id)))
    release(w.contexts_of, e.consumer, context)
    drop(w.contexts, (e.consumer, e.uuid))


@compiled
def forget_counted(w: World, context: Int) -> None:
    """Remove a context as the client does at a failure: without B1 counter and FIFO are updated."""
    consumer, hash_ = w.contexts.rows[context].consumer, w.contexts.rows[context].hash
    forget(w, context)
    if w.settings[0].b1 == 0:
        w.consumers[consumer].counter -= 1
        leave_fifo(w, consumer, hash_)


@compiled
def has_position(w: World, context: Int, ledger: Int, entry: Int) -> bool:
    """Whether a position is among the ids of a context."""
    e = w.contexts.rows[context]
    for chunk_id in range(e.last + 1):
        b = chunk_of(w.buffered, context, np.int64(chunk_id))
        if b.ledger_id == ledger and b.entry_id == entry:
            return True
    return bool(e.more_ledger != NULL and e.more_ledger == ledger and e.more_entry == entry)


@inlined
def store(w: World, c: Record, context: Int) -> None:
    """Append a chunk."""
    e, size = w.contexts.rows[context], size_of(c)
    b = w.buffered.rows[at(w.buffered, (context, c.chunk_id))]
    copy_fields(b, c)
    b.size = size
    e.more_ledger = NULL
    e.last, e.last_ms = c.chunk_id, c.ts_wall_ms
    e.marker_ledger, e.marker_entry = c.marker_ledger, c.marker_entry
    if size == NULL:
        e.unknown = 1
    else:
        e.buffered += size
        w.consumers[e.consumer].buffered += size
    if c.payload_bytes == NULL:
        e.has_crc = 0
    elif e.has_crc != 0:
        e.crc = combine(e.crc, c.payload_crc32, size)


# -- timers ----------------------------------------------------------------------------------


@inlined
def next_pass(p: Record, e: Record, now: Int) -> Int:
    """Due time of a consumer's first expiry pass at or after `now`; NULL if none can change
    anything."""
    period = p.expiry_ms
    if period <= 0 or e.start_ms == NULL or e.open == 0:
        return NULL
    if (e.contexts if p.b3 != 0 else e.entries) == 0:
        return NULL
    past = max(now - e.start_ms, ONE)
    due = e.start_ms + (past + period - 1) // period * period
    return due if due > e.passed_ms else due + period


@inlined
def is_closed(e: Record) -> bool:
    """Whether a consumer will vanish unless it returns."""
    return bool(e.closed_ms != NULL and e.open == 0)


@compiled
def arm(p: Record, k: Record, e: Record, now: Int) -> None:
    """Lower the earliest timer of a topic to that of a consumer."""
    due = e.closed_ms + p.expiry_ms if is_closed(e) else next_pass(p, e, now)
    if due != NULL and (k.due_ms == NULL or due < k.due_ms):
        k.due_ms = due


@inlined
def evict(w: World, o: Out, c: Record) -> None:
    """Give up the oldest uuid in the FIFO that still has a context."""
    context = NOBODY
    while context < 0 and w.fifo_of.first[c.consumer] >= 0:
        context = take_head(w, c.consumer)
        take_out(w, c.consumer, w.fifo_of.first[c.consumer])
    if context < 0:
        return
    row = new_row(w.keys, o, c, L.EVICTED, L.NO_DEFECT)
    about_context(w, row, context)
    n = add_ids(w, o, context, NULL, NULL) + add_marker(o, w.contexts.rows[context])
    if w.settings[0].auto_ack != 0:
        row.acks = n
    else:
        row.tracked = n
    forget(w, context)
    w.consumers[c.consumer].counter -= 1


@compiled
def expire(w: World, o: Out, c: Record) -> None:
    """An expiry pass of a consumer."""
    p, e, begin = w.settings[0], w.consumers[c.consumer], o.used[0].rows
    e.passed_ms = c.ts_wall_ms
    while w.fifo_of.first[c.consumer] >= 0:
        context = take_head(w, c.consumer)
        if context < 0 and p.b3 != 0:
            break
        if context >= 0 and c.ts_wall_ms - w.contexts.rows[context].first_ms <= p.expiry_ms:
            break
        take_out(w, c.consumer, w.fifo_of.first[c.consumer])
        if context < 0:
            continue
        row = new_row(w.keys, o, c, L.EXPIRED, L.NO_DEFECT)
        about_context(w, row, context)
        row.acks = add_ids(w, o, context, NULL, NULL) + add_marker(o, w.contexts.rows[context])
        forget(w, context)
        e.counter -= 1
    finish(o, e, begin, ZERO)


@compiled
def end_contexts(w: World, o: Out, c: Record, outcome: Int) -> None:
    """End all contexts of a consumer. Orphaned: its client has gone, nothing is acknowledged. Lost to
    sight: it cannot be followed any further; whether it acknowledges or tracks them is unknown."""
    e, begin = w.consumers[c.consumer], o.used[0].rows
    for context in each(w.contexts_of, c.consumer):
        row = new_row(w.keys, o, c, outcome, L.NO_DEFECT)
        about_context(w, row, context)
        if outcome == L.ORPHANED:
            n = add_ids(w, o, context, NULL, NULL)
            row.orphaned = n + add_marker(o, w.contexts.rows[context])
        forget(w, context)
    clear_fifo(w, c.consumer)
    e.counter = 0
    finish(o, e, begin, ZERO)


@compiled
def vanish(w: World, o: Out, c: Record) -> None:
    """End a closed consumer that has not returned."""
    end_contexts(w, o, c, L.ORPHANED)
    e = w.consumers[c.consumer]
    e.known, e.touched, e.lost = 0, 0, 0
    e.start_ms = e.passed_ms = e.closed_ms = NULL


# -- chunks ----------------------------------------------------------------------------------


@inlined
def is_blind(link: Record, now: Int) -> bool:
    """Whether a message may have begun in a gap of the topic's broker."""
    return bool(link.blind_ms != NULL and now < link.blind_ms)


@inlined
def is_last(c: Record) -> bool:
    """Whether a chunk is the last one, by its own count."""
    return bool(c.chunk_id == c.num_chunks - 1)


@compiled
def loses_permit(p: Record, c: Record) -> bool:
    """Whether the permit of a discarded chunk is lost: with B2 that of a last one."""
    return bool(is_last(c) and p.b2 != 0)


@compiled
def discarded(w: World, c: Record) -> Int:
    """Permits for a discarded chunk."""
    if loses_permit(w.settings[0], c):
        w.consumers[c.consumer].lost += 1
        return ZERO
    return ONE


@compiled
def defect_of_loss(p: Record, c: Record) -> Int:
    """The defect by which a discarded chunk is lost."""
    return L.B2 if loses_permit(p, c) else L.NO_DEFECT


@inlined
def is_old(p: Record, c: Record) -> bool:
    """Whether a chunk was published longer ago than an expiry."""
    published = c.publish_time_ms if c.publish_time_ms != NULL else c.ts_wall_ms
    return bool(p.expiry_ms > 0 and c.ts_wall_ms - published > p.expiry_ms)


@compiled
def lose(w: World, o: Out, c: Record, context: Int) -> Int:
    """Handle a chunk out of order: its context, if any, is dropped. Returns the permits."""
    if context >= 0:
        return lose_context(w, o, c, context)
    if is_blind(w.links[c.key], c.ts_wall_ms):
        new_row(w.keys, o, c, L.FIRST_UNSEEN, L.NO_DEFECT)
        return ZERO if is_last(c) else ONE
    p = w.settings[0]
    row = new_row(w.keys, o, c, L.NO_FIRST_CHUNK, defect_of_loss(p, c))
    add_position(o, c.ledger_id, c.entry_id)
    if is_old(p, c):
        row.acks = 1
    else:
        row.tracked = 1
    return discarded(w, c)


@inlined
def lose_context(w: World, o: Out, c: Record, context: Int) -> Int:
    """Handle a chunk that does not follow the last one of its context."""
    p, e = w.settings[0], w.contexts.rows[context]
    row = new_row(w.keys, o, c, L.GAP, defect_of_loss(p, c))
    row.age_ms = c.ts_wall_ms - e.first_ms
    if p.b4 != 0:
        row.defect = L.B4
    elif p.b1 != 0:
        row.defect = L.B1
    if is_old(p, c):
        add_position(o, c.ledger_id, c.entry_id)
        row.acks = 1
    if p.b4 == 0:
        row.tracked = add_ids(w, o, context, c.ledger_id, c.entry_id) + add_marker(o, e)
    if row.acks == 0:
        add_position(o, c.ledger_id, c.entry_id)
        row.tracked += 1
    if p.b4 != 0:
        row.orphaned = add_ids(w, o, context, c.ledger_id, c.entry_id) + add_marker(o, e)
    forget_counted(w, context)
    return discarded(w, c)


@compiled
def give_up(w: World, o: Out, c: Record, context: Int, outcome: Int) -> Int:
    """Acknowledge everything of a message that can never complete. Returns the permits."""
    e = w.contexts.rows[context]
    row = new_row(w.keys, o, c, outcome, L.NO_DEFECT)
    row.age_ms = c.ts_wall_ms - e.first_ms
    n = add_ids(w, o, context, c.ledger_id, c.entry_id)
    add_position(o, c.ledger_id, c.entry_id)
    row.acks = n + 1 + add_marker(o, e)
    consumer, hash_ = e.consumer, e.hash
    forget(w, context)
    w.consumers[consumer].counter -= 1
    if w.settings[0].b1 == 0:
        leave_fifo(w, consumer, hash_)
    return ONE


@compiled
def fail(w: World, o: Out, c: Record, context: Int, outcome: Int, defect: Int) -> Int:
    """Handle an exception in the client. Returns the permits."""
    row = new_row(w.keys, o, c, outcome, defect)
    row.age_ms = c.ts_wall_ms - w.contexts.rows[context].first_ms
    if is_last(c):
        w.consumers[c.consumer].lost += 1
        return ZERO
    return ONE


@inlined
def complete(w: World, o: Out, c: Record, context: Int) -> Int:
    """Complete a message. Returns the permits."""
    n, k, e = o.used[0], w.keys[c.key], w.contexts.rows[context]
    row = new_row(w.keys, o, c, L.COMPLETE, L.NO_DEFECT)
    row.age_ms = c.ts_wall_ms - e.first_ms
    if k.message_ms != c.ts_wall_ms:
        k.message_ms, k.message_no = c.ts_wall_ms, 0
    m = o.messages[n.messages]
    n.messages += 1
    copy_fields(m, c)
    copy_fields(m, e)
    m.row_no = k.message_no
    k.message_no += 1
    m.start, m.parts = n.parts, e.last + 1
    for chunk_id in range(e.last + 1):
        copy_fields(o.parts[n.parts], chunk_of(w.buffered, context, np.int64(chunk_id)))
        n.parts += 1
    consumer = e.consumer
    forget(w, context)
    w.consumers[consumer].counter -= 1
    return ZERO


@compiled
def append(w: World, o: Out, c: Record, context: Int) -> Int:
    """Append the next chunk of a message. Returns the permits."""
    p, e, size = w.settings[0], w.contexts.rows[context], size_of(c)
    if p.b8 == 0:
        if c.num_chunks != e.num_chunks:
            return give_up(w, o, c, context, L.GIVEN_UP_COUNT)
    elif c.chunk_id >= e.num_chunks:
        return fail(w, o, c, context, L.COUNT_EXCEPTION, L.B8)
    if size != NULL and e.unknown == 0 and size > e.total_chunk_bytes - e.buffered:
        if p.b7 == 0:
            return give_up(w, o, c, context, L.GIVEN_UP_OVERFLOW)
        e.more_ledger, e.more_entry = c.ledger_id, c.entry_id
        return fail(w, o, c, context, L.OVERFLOW_EXCEPTION, L.B7)
    store(w, c, context)
    if not is_last(c):
        return ONE
    if c.chunk_id != e.num_chunks - 1:
        permits = fail(w, o, c, context, L.COUNT_EXCEPTION, L.B8)
        forget_counted(w, context)
        return permits
    return complete(w, o, c, context)


@inlined
def judge_chunk(w: World, o: Out, c: Record) -> Int:
    """Apply sections 4 and 5 of the client's algorithm. Returns the permits."""
    p, e = w.settings[0], w.consumers[c.consumer]
    if e.start_ms == NULL:
        e.start_ms, e.start_order = c.ts_wall_ms, p.next_order
        p.next_order += 1
    context = find(w.contexts, (c.consumer, c.uuid))
    if c.chunk_id == 0:
        if context >= 0 and p.lose == 0:
            restart(w, o, c, context)
        elif context >= 0:
            return lose(w, o, c, context)
        e.counter += 1
        if 0 < w.most_pending[c.consumer] < e.counter:
            evict(w, o, c)
        return append(w, o, c, create(w, c))
    newest = w.contexts.rows[context].last if context >= 0 else NOBODY
    if context >= 0 and c.chunk_id == newest + 1:
        return append(w, o, c, context)
    if context >= 0 and c.chunk_id <= newest:
        return repeat(w, o, c, context)
    return lose(w, o, c, context)


@inlined
def repeat(w: World, o: Out, c: Record, context: Int) -> Int:
    """Handle a chunk that its context has. Returns the permits."""
    same = has_position(w, context, c.ledger_id, c.entry_id)
    outcome = L.DUP_SAME_ID if same else L.DUP_ACKED
    row = new_row(w.keys, o, c, outcome, defect_of_loss(w.settings[0], c))
    row.age_ms = c.ts_wall_ms - w.contexts.rows[context].first_ms
    if not same:
        add_position(o, c.ledger_id, c.entry_id)
        row.acks = 1
    return discarded(w, c)


@inlined
def restart(w: World, o: Out, c: Record, context: Int) -> None:
    """Handle chunk 0 of a message that is being assembled."""
    e = w.contexts.rows[context]
    same = has_position(w, context, c.ledger_id, c.entry_id)
    outcome = L.RESTART_REDELIVERY if same else L.RESTART_CORRUPTED
    row = new_row(w.keys, o, c, outcome, L.B1 if w.settings[0].b1 != 0 else L.NO_DEFECT)
    row.age_ms = c.ts_wall_ms - e.first_ms
    if not same:
        row.acks = add_ids(w, o, context, NULL, NULL)
        if e.marker_ledger != c.marker_ledger or e.marker_entry != c.marker_entry:
            row.acks += add_marker(o, e)
    forget_counted(w, context)


@compiled
def deliver(w: World, o: Out, c: Record, begin: Int) -> Int:
    """Judge a chunk, which its consumer receives; its rows start at `begin`. Returns the permits that
    it gives back at once.
    """
    p, k, e, now = w.settings[0], w.keys[c.key], w.consumers[c.consumer], c.ts_wall_ms
    k.touched, e.touched = 1, 1
    is_unused = e.start_ms != NULL and e.contexts == 0 and e.counter == 0
    if is_unused and now - e.used_ms >= p.idle_ms:
        clear_fifo(w, c.consumer)
        e.start_ms, e.lost, e.passed_ms = NULL, 0, NULL
    e.used_ms = now
    if acknowledged(w.subs, w.acks, w.acked, c.sub, c.ledger_id, c.entry_id):
        new_row(w.keys, o, c, L.ALREADY_ACKED, L.NO_DEFECT)
        finish(o, e, begin, ONE)
        return ONE
    permits = judge_chunk(w, o, c)
    k.most = max(k.most, e.contexts)
    finish(o, e, begin, permits)
    arm(p, k, e, now)
    return permits
