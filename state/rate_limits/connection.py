"""Connections: producers and topics on them, requests in flight, bytes buffered per IO thread."""

from __future__ import annotations

import numpy as np

from state.engine import tables
from state.rate_limits.bucket import PERIOD_NS, RESOLUTION_NS, balance_at
from state.rate_limits.exchange import announce
from state.rate_limits.layout import (
    BUFFER_HALF,
    BUFFER_LIMIT,
    CONNECTION,
    CONNECTION_CLOSED,
    FLAGS,
    IN_FLIGHT_HALF,
    IN_FLIGHT_LIMIT,
    IO_THREAD,
    LIMIT_REMOVED,
    NEVER,
    NO_EXCHANGE,
    NOBODY,
    NOT_OBSERVED,
    NULL,
    TYPES,
    Amount,
    Instant,
    Int,
    Mark,
    Out,
    World,
    compiled,
    inlined,
)
from state.rate_limits.limiter import unmark_place
from state.rate_limits.tracker import (
    flag_owner,
    is_overdue,
    join_topic,
    leave_topic,
    mark,
    marks_of_group,
    unmark,
)


@compiled
def open_connection(w: World, c: int) -> None:
    """Open a connection; its first event does so."""
    if w.cnxs[c].open == 0:
        w.cnxs[c].open = 1
        w.cnxs[c].opened = w.key[0]["timer_order"]
        w.key[0]["timer_order"] += 1


@compiled
def by_age(w: World, thread: int) -> tuple[Int, Int]:
    """Open connections of an IO thread (-1 = of all), oldest first: their places in `w.scratch`.

    The two kinds have a place of their own, so that one list can be read while another is made.
    """
    start = np.int64(0) if thread < 0 else np.int64(len(w.cnxs))
    end = start
    for c in range(len(w.cnxs)):
        if w.cnxs[c].open != 0 and (thread < 0 or w.cnxs[c].thread == thread):
            # they are mostly in this order already
            at = end
            while at > start and w.cnxs[w.scratch[at - 1]].opened > w.cnxs[c].opened:
                w.scratch[at] = w.scratch[at - 1]
                at -= 1
            w.scratch[at] = c
            end += 1
    return start, end


@compiled
def open_producer(w: World, p: int, now: int) -> None:
    """Open a producer; its creation or its first publish does so."""
    producer = w.producers[p]
    if producer.open != 0:
        return
    open_connection(w, producer.cnx)
    link = producer.link
    e = w.links[link]
    if e.attached == 0:
        cnx = w.cnxs[e.cnx]
        e.attached, e.next = 1, cnx.first_link
        e.producers, e.first_producer, e.culprit, e.charged_by = 0, -1, 0, -1
        e.held = marks_of_group(w, e.cnx, w.topics[e.topic].group)
        cnx.first_link = link
    if producer.attached == 0:
        producer.attached, producer.next = 1, e.first_producer
        e.first_producer = p
    producer.open, producer.name = 1, -1
    producer.opened = w.key[0]["timer_order"]
    w.key[0]["timer_order"] += 1
    producer.heard_ms, producer.kept_end_ms = NEVER, NEVER
    e.producers += 1
    if e.producers == 1:
        join_topic(w, link, now)


@compiled
def close_producer(w: World, p: int, now: int) -> None:
    """Close a producer; its places in the FIFOs stay, as in the broker."""
    producer = w.producers[p]
    if producer.open == 0:
        return
    link = producer.link
    if w.links[link].producers == 1:
        leave_topic(w, link, now)
    w.links[link].producers -= 1
    producer.open = 0


@inlined
def start_request(w: World, o: Out, at: Instant, p: int, size: int) -> None:
    """Add a publish to the requests in flight. At the limit the connection pauses; above the IO
    thread's share all of its connections do.
    """
    k = w.key[0]
    if k["max_in_flight"] <= 0 and k["buffer_share"] <= 0:
        return
    c, t = w.producers[p].cnx, w.producers[p].topic
    cnx = w.cnxs[c]
    _add_to_run(w, c, t)
    cnx.in_flight += 1
    cnx.most_in_flight = max(cnx.most_in_flight, cnx.in_flight)
    cnx.buffered += size
    if k["max_in_flight"] > 0 and cnx.in_flight == k["max_in_flight"]:
        cnx.resume_at = k["max_in_flight"] // 2
        row = mark(w, o, at, Mark(c, p, t, CONNECTION, IN_FLIGHT_LIMIT, c, t))
        announce(w, o, row, NOBODY)
    if cnx.thread >= 0:
        _buffer(w, o, at, p, size)


@compiled
def _add_to_run(w: World, c: int, t: int) -> None:
    """One more request in flight of a connection for a topic: in its last run, or a new one."""
    last, k = w.runs.last[t], w.key[0]
    if last >= 0 and w.flights.rows[last].cnx == c:
        w.flights.rows[last].requests += 1
        return
    place = tables.at(w.flights, (k["flight_no"],))
    k["flight_no"] += 1
    x = w.flights.rows[place]
    x.topic, x.cnx, x.requests = t, c, 1
    tables.adopt(w.runs, t, place)


@compiled
def _buffer(w: World, o: Out, at: Instant, p: int, size: int) -> None:
    """Add the bytes of a request to those that its IO thread has in flight."""
    c, t, share = w.producers[p].cnx, w.producers[p].topic, w.key[0]["buffer_share"]
    owner = w.cnxs[c].thread
    thread = w.threads[owner]
    thread.pending += size
    thread.most_pending = max(thread.most_pending, thread.pending)
    if share <= 0 or thread.pending <= share or thread.limited != 0:
        return
    thread.limited = 1
    row = mark(w, o, at, Mark(c, p, t, IO_THREAD, BUFFER_LIMIT, owner, t))
    announce(w, o, row, NOBODY)
    first, end = by_age(w, owner)
    for i in range(first, end):
        other = w.scratch[i]
        if other != c:
            row = mark(w, o, at, Mark(other, NOBODY, NOBODY, IO_THREAD, BUFFER_LIMIT, owner, t))
            announce(w, o, row, NOBODY)


@compiled
def _end_run(w: World, run: int) -> None:
    x = w.flights.rows[run]
    tables.release(w.runs, x.topic, run)
    tables.drop(w.flights, (x.number,))


@compiled
def _end_all_runs(w: World) -> None:
    for t in range(len(w.topics)):
        while w.runs.first[t] >= 0:
            _end_run(w, w.runs.first[t])


@compiled
def end_request(w: World, o: Out, at: Instant, c: int, t: int, size: int) -> None:
    """End a request because an entry was persisted: of its connection, or (c = -1) of the
    connection with the oldest request for its topic. Without a request in flight it has no effect.
    """
    run = w.runs.first[t]
    while run >= 0 and c != NOBODY and w.flights.rows[run].cnx != c:
        run = w.runs.following[run]
    if run < 0:
        return
    c = w.flights.rows[run].cnx
    w.flights.rows[run].requests -= 1
    if w.flights.rows[run].requests == 0:
        _end_run(w, run)
    cnx = w.cnxs[c]
    cnx.in_flight -= 1
    cnx.buffered -= size
    if cnx.states[CONNECTION] > 0 and cnx.in_flight <= cnx.resume_at:
        end_flag(w, o, at, at.mono_ns, c, CONNECTION, IN_FLIGHT_HALF)
    if cnx.thread >= 0:
        w.threads[cnx.thread].pending -= size
        resume_thread(w, o, at, at.mono_ns, cnx.thread, BUFFER_HALF)


@compiled
def end_flag(w: World, o: Out, at: Instant, settle_ns: int, c: int, kind: int, rule: int) -> None:
    """End the mark of the connection or IO-thread limiter as the model does; that of an observed
    connection only if no pause was reported in time.
    """
    cnx = w.cnxs[c]
    if cnx.observed == 0:
        unmark_flag(w, o, at, settle_ns, c, kind, rule)
    elif is_overdue(w, c, cnx.flag_ns[kind], at.mono_ns):
        unmark_flag(w, o, at, settle_ns, c, kind, NOT_OBSERVED)


@compiled
def unmark_flag(
    w: World, o: Out, at: Instant, settle_ns: int, c: int, kind: int, rule: int
) -> None:
    """End the mark of the connection or IO-thread limiter with the producer it was made for."""
    cnx = w.cnxs[c]
    p, trigger = cnx.mark_producer[kind], cnx.mark_topic[kind]
    topic = w.producers[p].topic if p >= 0 else NOBODY
    m = Mark(c, p, topic, kind, rule, flag_owner(w, c, kind), trigger)
    unmark(w, o, at, settle_ns, m, NULL, NO_EXCHANGE)


@compiled
def resume_thread(w: World, o: Out, at: Instant, settle_ns: int, t: int, rule: int) -> None:
    """Resume the connections of an IO thread when half of its share is free."""
    thread = w.threads[t]
    if thread.limited == 0 or thread.pending > w.key[0]["buffer_share"] // 2:
        return
    thread.limited = 0
    first, last = by_age(w, t)
    for i in range(first, last):
        c = w.scratch[i]
        if w.cnxs[c].states[IO_THREAD] > 0:
            end_flag(w, o, at, settle_ns, c, IO_THREAD, rule)


@compiled
def peek(w: World, limiter: int, now: int) -> Amount:
    """The balances of a limiter without touching it; 0 without the bucket."""
    return Amount(_balance(w, 2 * limiter, now), _balance(w, 2 * limiter + 1, now))


@compiled
def _balance(w: World, bucket: int, now: int) -> Int:
    b = w.buckets[bucket]
    if b["rate"] <= 0:
        return np.int64(0)
    return balance_at(b, now, PERIOD_NS, RESOLUTION_NS, w.key[0]["tokenbucket"])


@compiled
def _leave_queues(w: World, o: Out, at: Instant, settle_ns: int, c: int, rule: int) -> None:
    """The producers of a closed connection leave every FIFO, in the order of their marks."""
    while w.marks.first[c] >= 0:
        place = w.marks.first[c]
        balances = peek(w, w.waiting.rows[place].limiter, settle_ns)
        unmark_place(w, o, at, settle_ns, place, rule, balances)


@compiled
def _leave_topics(w: World, c: int) -> None:
    """The producers of a closed connection end, and its requests in flight."""
    cnx = w.cnxs[c]
    link = cnx.first_link
    while link >= 0:
        e = w.links[link]
        p = e.first_producer
        while p >= 0:
            w.producers[p].open, w.producers[p].attached = 0, 0
            p = w.producers[p].next
        run = w.runs.first[e.topic]
        while run >= 0 and cnx.in_flight > 0:
            following = w.runs.following[run]
            if w.flights.rows[run].cnx == c:
                _end_run(w, run)
            run = following
        e.attached, e.producers, e.first_producer, e.charged_by = 0, 0, -1, -1
        link = e.next


@compiled
def close_connection(w: World, o: Out, at: Instant, settle_ns: int, c: int, rule: int) -> None:
    """Close a connection that has closed or is out of sight: its marks, producers and requests end;
    `rule` is CONNECTION_CLOSED or LOST_SIGHT.

    `settle_ns` is `now` on the clock of the connection, which differs after a restart. At a gap it
    is the time up to which the connection was seen.
    """
    cnx = w.cnxs[c]
    for flag in FLAGS:
        if cnx.states[flag] > 0:
            unmark_flag(w, o, at, settle_ns, c, flag, rule)
    _leave_queues(w, o, at, settle_ns, c, rule)
    _leave_topics(w, c)
    for kind in range(TYPES):
        cnx.states[kind] = 0
    cnx.requests = 0
    thread, buffered = cnx.thread, cnx.buffered
    cnx.open, cnx.supports_throttle, cnx.thread = 0, 0, -1
    cnx.first_link, cnx.snapshot, cnx.in_flight, cnx.buffered = -1, -1, 0, 0
    cnx.seen_paused_ns, cnx.seen_resumed_ns, cnx.resume_at = NEVER, NEVER, 0
    cnx.observed, cnx.stopped, cnx.look, cnx.publishes = 0, 0, NULL, 0
    if thread >= 0:
        e = w.threads[thread]
        e.pending -= buffered
        e.most_pending = max(e.most_pending, e.pending)  # it may have been below 0
        resumed_by = BUFFER_HALF if rule == CONNECTION_CLOSED else rule
        resume_thread(w, o, at, settle_ns, thread, resumed_by)


@compiled
def stop_counting(w: World, o: Out, at: Instant, kind: int) -> None:
    """Remove the connection or IO-thread limit: its marks end at once."""
    first, last = by_age(w, NOBODY)
    for i in range(first, last):
        c = w.scratch[i]
        if w.cnxs[c].states[kind] > 0:
            end_flag(w, o, at, at.mono_ns, c, kind, LIMIT_REMOVED)
    if kind == IO_THREAD:
        for t in range(len(w.threads)):
            w.threads[t].limited = 0
    k = w.key[0]
    if k["max_in_flight"] > 0 or k["buffer_share"] > 0:
        return
    for c in range(len(w.cnxs)):
        w.cnxs[c].in_flight, w.cnxs[c].buffered = 0, 0
    for t in range(len(w.threads)):
        w.threads[t].pending = 0
    _end_all_runs(w)


@compiled
def restart(w: World, o: Out, at: Instant, settle_ns: int, rule: int) -> None:
    """Close every connection, because the broker has started or was out of sight."""
    first, last = by_age(w, NOBODY)
    for i in range(first, last):
        c = w.scratch[i]
        if w.cnxs[c].open != 0:
            close_connection(w, o, at, settle_ns, c, rule)
    for t in range(len(w.threads)):
        w.threads[t].pending, w.threads[t].limited = 0, 0
    for t in range(len(w.topics)):
        w.topics[t].used_ns = NEVER
    _end_all_runs(w)
    w.key[0]["timers"] = 0
