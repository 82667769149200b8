"""Pauses that the feed reports correct those of the model.

The limiter of a broker runs on a clock that a feed cannot see. Under a producer that never stops,
each pause begins at the first publish after the last one ended, so one token or one millisecond of
difference is fed back. On an observed connection the ends of pauses are therefore the reported
ones, and a release has found the balance that it waits for. The model finds the beginnings; where
it lacks one, the limiter that is nearest to acting gets the mark.
"""

from __future__ import annotations

import numpy as np

from state.rate_limits.bucket import PERIOD_NS, RESOLUTION_NS, balance_at
from state.rate_limits.connection import peek, unmark_flag
from state.rate_limits.layout import (
    BROKER,
    BROKER_LIMITER,
    CAUSES,
    CONNECTION,
    FLAGS,
    IO_THREAD,
    MARK_OBSERVED,
    NEVER,
    NO_EXCHANGE,
    NOBODY,
    NOT_OBSERVED,
    NULL,
    OBSERVED_PAUSE,
    OBSERVED_RESUME,
    PAUSE,
    RESOURCE_GROUP,
    STATE_CHANGED,
    TOPIC,
    TYPE_CHANGED,
    UNKNOWN,
    Amount,
    Instant,
    Int,
    Mark,
    Out,
    World,
    compiled,
)
from state.rate_limits.limiter import describe, lift, queue_up, read_limiter, unmark_place
from state.rate_limits.timers import schedule, schedule_look
from state.rate_limits.tracker import (
    blame,
    counts,
    flag_owner,
    is_overdue,
    mark,
    start_blocking,
    write_row,
)

FAR = np.inf


@compiled
def observe(w: World, c: int) -> None:
    """The feed reports the pauses of a connection from now on; a pause of the model that lasts is
    taken to be one of the broker.
    """
    cnx = w.cnxs[c]
    if cnx.observed == 0:
        cnx.observed, cnx.stopped = 1, cnx.paused
        cnx.seen_paused_ns, cnx.seen_resumed_ns = NEVER, NEVER


@compiled
def ignore_reports(w: World, o: Out, at: Instant) -> None:
    """Continue with the model alone after reports have corrected it, as a shadow does that begins
    with the live state: marks hold the reads again, and release tasks end them.
    """
    now = at.mono_ns
    for c in range(len(w.cnxs)):
        cnx = w.cnxs[c]
        if cnx.observed == 0:
            continue
        if cnx.states[UNKNOWN] > 0:
            unmark_flag(w, o, at, now, c, UNKNOWN, NOT_OBSERVED)
        joins = cnx.stopped == 0
        cnx.observed, cnx.stopped, cnx.look, cnx.seen_paused_ns = 0, 0, NULL, NEVER
        for kind in range(CAUSES):
            if joins and cnx.states[kind] > 0 and not counts(kind, w.key[0]["shared"]):
                start_blocking(w, c, now, kind, flag_owner(w, c, kind), cnx.mark_topic[kind])
        place = w.marks.first[c]
        while place >= 0:
            x = w.waiting.rows[place]
            if joins and counts(x.type, w.key[0]["shared"]):
                start_blocking(w, c, now, x.type, x.limiter, x.trigger)
            place = w.marks.following[place]
    for limiter in range(len(w.limiters)):
        if w.limiters[limiter].waiting > 0 and w.limiters[limiter].tasks == 0:
            schedule(w, limiter, now)


@compiled
def take_pause(w: World, o: Out, at: Instant, c: int) -> None:
    """The broker has stopped reading a connection."""
    cnx, now = w.cnxs[c], at.mono_ns
    if cnx.stopped != 0:
        if cnx.seen_paused_ns == NEVER:
            cnx.seen_paused_ns = now
        return
    cnx.stopped, cnx.seen_paused_ns = 1, now
    if not _join(w, o, at, c):
        _mark_nearest(w, o, at, c)


@compiled
def take_resume(w: World, o: Out, at: Instant, c: int) -> None:
    """The broker reads a connection again: all of its marks end, and a limiter that a release has
    left has the balance that a release waits for.
    """
    cnx, now = w.cnxs[c], at.mono_ns
    for kind in FLAGS:
        if cnx.states[kind] > 0:
            unmark_flag(w, o, at, now, c, kind, OBSERVED_RESUME)
    while w.marks.first[c] >= 0:
        place = w.marks.first[c]
        limiter = w.waiting.rows[place].limiter
        if w.limiters[limiter].built != 0:
            w.limiters[limiter].used_ns = now
        balances = lift(w, limiter, now, True)
        unmark_place(w, o, at, now, place, OBSERVED_RESUME, balances)
    cnx.stopped, cnx.seen_paused_ns = 0, NEVER
    link = cnx.first_link
    while link >= 0:
        w.links[link].charged_by = -1
        link = w.links[link].next


@compiled
def _next_flag(w: World, c: int, after: int) -> Int:
    """The flag of a connection that was set first after a mark, -1 without one."""
    cnx = w.cnxs[c]
    found = NOBODY
    for kind in range(CAUSES):
        if (
            cnx.states[kind] > 0
            and not counts(kind, w.key[0]["shared"])
            and cnx.flag_mark[kind] > after
            and (found < 0 or cnx.flag_mark[kind] < cnx.flag_mark[found])
        ):
            found = np.int64(kind)
    return found


@compiled
def _join(w: World, o: Out, at: Instant, c: int) -> bool:
    """Begin a pause with the marks that the model has made since the last one, in their order;
    whether there are any. Each limiter has one row.
    """
    k, cnx, now = w.key[0], w.cnxs[c], at.mono_ns
    k["stamp"] += 1
    place, flag, found = w.marks.first[c], _next_flag(w, c, NEVER), False
    while place >= 0 or flag >= 0:
        if flag >= 0 and (place < 0 or cnx.flag_mark[flag] < w.waiting.rows[place].order):
            kind, owner = flag, flag_owner(w, c, flag)
            producer, trigger = cnx.mark_producer[flag], cnx.mark_topic[flag]
            fresh = True
            flag = _next_flag(w, c, cnx.flag_mark[flag])
        else:
            x = w.waiting.rows[place]
            kind, owner, producer, trigger = x.type, x.limiter, x.producer, x.trigger
            place = w.marks.following[place]
            if not counts(kind, k["shared"]):
                continue  # its flag is the mark
            fresh = w.limiters[owner].stamp != k["stamp"]
            w.limiters[owner].stamp = k["stamp"]
        start_blocking(w, c, now, kind, owner, trigger)
        if kind == TOPIC:
            blame(w, c, now, trigger)
        if not found:
            _count(w, c, kind, owner, 1)
        if fresh:
            topic = w.producers[producer].topic if producer >= 0 else NOBODY
            transition = TYPE_CHANGED if found else STATE_CHANGED
            m = Mark(c, producer, topic, kind, MARK_OBSERVED, owner, trigger)
            row = write_row(w, o, at, m, PAUSE, transition, NULL, NO_EXCHANGE)
            if kind == TOPIC or kind == RESOURCE_GROUP or kind == BROKER:
                describe(w, o, row, owner, peek(w, owner, now), now)
        found = True
    return found


@compiled
def _count(w: World, c: int, kind: int, owner: int, predicted: int) -> None:
    """Count an observed pause of a limiter in the open window."""
    if kind == CONNECTION:
        w.cnxs[c].observed_pauses += 1
        w.cnxs[c].predicted_pauses += predicted
    elif kind == IO_THREAD:
        w.threads[owner].observed_pauses += 1
        w.threads[owner].predicted_pauses += predicted
    elif kind != UNKNOWN:
        w.limiters[owner].observed_pauses += 1
        w.limiters[owner].predicted_pauses += predicted


@compiled
def _room(w: World, limiter: int, now: int) -> tuple[float, Int]:
    """How near a limiter is to acting: the smallest balance as a share of its rate, and its bucket.
    One that is at rest has none, so that it may be dropped.
    """
    left, bucket = FAR, NOBODY
    if limiter < 0 or w.limiters[limiter].built == 0:
        return left, bucket
    if now - w.limiters[limiter].used_ns >= w.key[0]["idle_ns"]:
        return left, bucket
    for i in range(2):
        b = w.buckets[2 * limiter + i]
        if b["rate"] <= 0:
            continue
        balance = balance_at(b, now, PERIOD_NS, RESOLUTION_NS, w.key[0]["tokenbucket"])
        share = np.float64(balance) / np.float64(b["rate"])
        if share < left:
            left, bucket = share, np.int64(2 * limiter + i)
    return left, bucket


@compiled
def _mark_nearest(w: World, o: Out, at: Instant, c: int) -> None:
    """Mark for a pause that the model lacks: the limiter that is nearest to acting among those that
    the connection's publishes have charged since its reads were resumed. Of two that are equally
    near, the one that is charged first; of its topics, the one published to last.
    """
    k, cnx, now = w.key[0], w.cnxs[c], at.mono_ns
    left, kind, bucket, charged = FAR, UNKNOWN, NOBODY, NOBODY
    rank, number = np.int64(0), np.int64(0)
    link = cnx.first_link
    while link >= 0:
        e = w.links[link]
        if e.charged_by >= 0:
            topic, thread = w.topics[e.topic], cnx.thread
            for place in range(5):
                room, of, its = FAR, NOBODY, CONNECTION
                if place == 0:
                    if k["max_in_flight"] > 0:
                        room = 1.0 - np.float64(cnx.in_flight) / np.float64(k["max_in_flight"])
                elif place == 1:
                    its = IO_THREAD
                    if thread >= 0 and k["buffer_share"] > 0:
                        pending = np.float64(w.threads[thread].pending)
                        room = 1.0 - pending / np.float64(k["buffer_share"])
                elif place == 2:
                    its = TOPIC
                    room, of = _room(w, topic.limiter, now)
                elif place == 3:
                    its = BROKER
                    if topic.exempt == 0:
                        room, of = _room(w, BROKER_LIMITER, now)
                else:
                    its = RESOURCE_GROUP
                    room, of = _room(w, topic.group, now)
                if room < left or (
                    room == left
                    and room != FAR
                    and (place < rank or (place == rank and e.charged_no > number))
                ):
                    left, kind, bucket, charged = room, its, of, e.charged_by
                    rank, number = np.int64(place), e.charged_no
        link = e.next
    topic_of = w.producers[charged].topic if charged >= 0 else NOBODY
    if bucket >= 0:
        limiter = bucket // 2
        _, (msgs, size) = read_limiter(w, limiter, now)
        if bucket == 2 * limiter:
            w.buckets[bucket]["tokens"] -= msgs
            msgs = np.int64(0)
        else:
            w.buckets[bucket]["tokens"] -= size
            size = np.int64(0)
        queue_up(w, o, at, limiter, charged, topic_of, OBSERVED_PAUSE, Amount(msgs, size))
        _count(w, c, kind, limiter, 0)
        return
    owner = np.int64(c)
    if kind == IO_THREAD:
        owner = np.int64(cnx.thread)
    elif kind == CONNECTION:
        cnx.resume_at = k["max_in_flight"] // 2
    mark(w, o, at, Mark(c, charged, topic_of, kind, OBSERVED_PAUSE, owner, topic_of))
    _count(w, c, kind, owner, 0)


@compiled
def _has_ended(w: World, c: int, kind: int) -> bool:
    """Whether the model would have ended the flag of the connection or IO-thread limiter."""
    cnx, k = w.cnxs[c], w.key[0]
    if kind == CONNECTION:
        return k["max_in_flight"] <= 0 or cnx.in_flight <= cnx.resume_at
    return cnx.mark_thread < 0 or w.threads[cnx.mark_thread].limited == 0


@compiled
def look(w: World, o: Out, at: Instant, c: int) -> bool:
    """End the marks whose pause the feed has not reported in time and that the model would have
    ended; whether there were any. Marks whose time has not come are looked at again.
    """
    cnx, now = w.cnxs[c], at.mono_ns
    cnx.look = NULL
    found, earliest = False, NULL
    if cnx.stopped != 0:
        return found
    for kind in (CONNECTION, IO_THREAD):
        if cnx.states[kind] <= 0:
            continue
        if not is_overdue(w, c, cnx.flag_ns[kind], now):
            if earliest == NULL or cnx.flag_ns[kind] < earliest:
                earliest = np.int64(cnx.flag_ns[kind])
        elif _has_ended(w, c, kind):
            found = True
            unmark_flag(w, o, at, now, c, kind, NOT_OBSERVED)
    place = w.marks.first[c]
    while place >= 0:
        x, following = w.waiting.rows[place], w.marks.following[place]
        limiter, marked_ns = x.limiter, x.marked_ns
        if not is_overdue(w, c, marked_ns, now):
            if earliest == NULL or marked_ns < earliest:
                earliest = np.int64(marked_ns)
            break
        if x.ended != 0:
            found = True
            balances = lift(w, limiter, now, False)
            unmark_place(w, o, at, now, place, NOT_OBSERVED, balances)
        place = following
    if earliest != NULL:
        schedule_look(w, earliest + w.key[0]["observed_wait_ns"], c)
    return found
