"""The records of one broker in order, with its timers and windows between them.

The kernel stops with a status when it needs its caller: for more room for rows, to write a window,
to apply a policy or to carry out a restart. The next call continues at the same record.
"""

from __future__ import annotations

import numpy as np

from state.engine.clocks import wall_at, window_clock
from state.engine.tables import is_short
from state.events import KIND_INDEX
from state.rate_limits.connection import (
    close_connection,
    close_producer,
    end_request,
    open_connection,
    open_producer,
    start_request,
)
from state.rate_limits.exchange import end_wait, take_receipt, time_out
from state.rate_limits.layout import (
    BROKER_LIMITER,
    CAUSES,
    LOOK,
    NEVER,
    NULL,
    RELEASE_TASK,
    Amount,
    Array,
    Instant,
    Int,
    Out,
    Record,
    World,
    compiled,
    inlined,
)
from state.rate_limits.layout import CONNECTION_CLOSED as BY_CLOSING
from state.rate_limits.limiter import charge_digest, charge_limiter, release, use
from state.rate_limits.observed import look, observe, take_pause, take_resume
from state.rate_limits.timers import pop_timer
from state.rate_limits.tracker import corrects, settle_all, touch

DONE, ROOM, WINDOW, ASK = range(4)
"""Why the kernel stopped: nothing left, rows are full, a window ends, or a record needs the caller.
"""

BROKER_STARTED = np.int64(KIND_INDEX["broker_started"])
CONNECTION_OPENED = np.int64(KIND_INDEX["connection_opened"])
CONNECTION_CLOSED = np.int64(KIND_INDEX["connection_closed"])
PRODUCER_CREATED = np.int64(KIND_INDEX["producer_created"])
PRODUCER_CLOSED = np.int64(KIND_INDEX["producer_closed"])
PUBLISH = np.int64(KIND_INDEX["publish"])
ENTRY_ADDED = np.int64(KIND_INDEX["entry_added"])
READS_PAUSED = np.int64(KIND_INDEX["reads_paused"])
READS_RESUMED = np.int64(KIND_INDEX["reads_resumed"])
THROTTLE_RECEIPT = np.int64(KIND_INDEX["throttle_receipt"])
TIMED_OUT_SEND = np.int64(KIND_INDEX["send_timeout"])
POLICY = np.int64(KIND_INDEX["policy"])
GAP = np.int64(KIND_INDEX["gap"])
PUBLISH_DIGEST = np.int64(KIND_INDEX["publish_digest"])
NS_PER_MS = np.int64(1_000_000)
LIMITERS_PER_PUBLISH = np.int64(3)
TIMERS_PER_PUBLISH = np.int64(6)
"""Release tasks and waits for a receipt; each connection may have a look besides."""
NOTHING_MORE = np.int64(0)


@inlined
def window_due(w: World, at: int) -> bool:
    """Whether a window with contents ends at or before `at`; an empty one is only moved on."""
    k = w.key[0]
    if k["any"] == 0 or at < k["window_start_ms"] + k["window_ms"]:
        return False
    if k["touched"] > 0 or k["paused_cnxs"] > 0:
        return True
    k["window_start_ms"] = at // k["window_ms"] * k["window_ms"]
    begin_counting(w)
    return False


@compiled
def begin_counting(w: World) -> None:
    """What limiters have counted in a window begins anew, with the levels of this moment."""
    for i in range(len(w.limiters)):
        e = w.limiters[i]
        e.charged, e.messages, e.bytes, e.has_least = 0, 0, 0, 0
        e.least_msgs, e.least_bytes, e.throttles = 0, 0, 0
        e.most_waiting = e.waiting
        e.observed_pauses, e.predicted_pauses = 0, 0
    for c in range(len(w.cnxs)):
        cnx = w.cnxs[c]
        cnx.most_in_flight, cnx.throttles = cnx.in_flight, 0
        cnx.observed_pauses, cnx.predicted_pauses = 0, 0
    for i in range(len(w.threads)):
        thread = w.threads[i]
        thread.most_pending, thread.throttles = thread.pending, 0
        thread.observed_pauses, thread.predicted_pauses = 0, 0


@inlined
def no_room(w: World, o: Out, more: int) -> bool:
    """Whether the next step may write more rows than there is room for."""
    k = w.key[0]
    return (
        k["rows"] + w.waiting.used[0] - w.waiting.used[1] + 3 * len(w.cnxs) + more > len(o.rows)
        or k["snapshots"] + len(w.cnxs) + 1 > len(o.snapshots)
        or k["snapshot_topics"] + len(w.links) + 1 > len(o.snapshot_topics)
        or k["verdict_rows"] + LIMITERS_PER_PUBLISH > len(o.verdicts)
        or is_short(w.waiting, LIMITERS_PER_PUBLISH)
        or is_short(w.flights, 1)
        or k["timers"] + TIMERS_PER_PUBLISH + len(w.cnxs) > len(w.timers)
        or 2 * len(w.cnxs) > len(w.scratch)
        or (
            k["protocol"] != 0
            and (
                # both broker, connection and thread may have to inform every producer
                k["command_rows"] + 3 * len(w.producers) + LIMITERS_PER_PUBLISH > len(o.commands)
                or 2 * len(w.cnxs) + 3 * len(w.producers) > len(w.scratch)
            )
        )
    )


@compiled
def advance(w: World, o: Out, clock: int, next_wall: int) -> Int:
    """Fire the timers that are due before `clock` and end windows on the way.

    `next_wall` is the wall time of the key's next record, NULL without one.
    """
    k = w.key[0]
    while k["timers"] > 0 and w.timers[0]["due_ns"] < clock:
        if no_room(w, o, NOTHING_MORE):
            return ROOM
        now = w.timers[0]["due_ns"] + 1
        at = Instant(now, wall_at(w.key, now, next_wall), k["last_feed"])
        if window_due(w, window_clock(now, at.wall_ms)):
            return WINDOW
        kind, limiter, c, place, mark = pop_timer(w)
        acts = True
        if kind == RELEASE_TASK:
            release(w, o, at, limiter)
        elif kind == LOOK:
            # one of a connection that has closed meanwhile is not its newest
            acts = w.cnxs[c].look == mark and look(w, o, at, c)
        else:
            end_wait(w, o, at, c, place, mark)
        if acts:
            k["acted"], k["acted_ns"] = 1, now
    return DONE


@compiled
def run(w: World, o: Out, records: Array, start: int, end: int) -> tuple[int, int]:
    """Judge records [start, end); returns a status and the record reached.

    After ASK the caller carries out the record; a policy already counts as the key's last record.
    """
    k = w.key[0]
    for i in range(start, end):
        if no_room(w, o, LIMITERS_PER_PUBLISH):
            return ROOM, i
        r = records[i]
        now, wall, kind = r.ts_mono_ns, r.ts_wall_ms, r.event_type
        if kind == BROKER_STARTED:
            return ASK, i
        status = advance(w, o, now, wall)
        if status != DONE:
            return status, i
        clock_ms = window_clock(now, wall)
        if k["any"] == 0:
            k["any"] = 1
            k["window_start_ms"] = clock_ms // k["window_ms"] * k["window_ms"]
            use(w, BROKER_LIMITER, now)
        elif window_due(w, clock_ms):
            return WINDOW, i
        if kind == GAP:
            return ASK, i
        k["last_ns"], k["last_wall_ms"], k["last_feed"], k["acted"] = now, wall, r.source_feed, 0
        if kind == POLICY:
            return ASK, i
        judge(w, o, r, Instant(now, wall, r.source_feed))
    return DONE, end


@inlined
def judge(w: World, o: Out, r: Record, at: Instant) -> None:
    """Carry out one record."""
    kind, c, p = r.event_type, r.cnx_place, r.producer_place
    if kind == PUBLISH or kind == PUBLISH_DIGEST or kind == PRODUCER_CREATED:
        take_of_producer(w, o, r, at)
    elif kind == ENTRY_ADDED:
        if r.topic_place >= 0:
            end_request(w, o, at, c, r.topic_place, r.entry_bytes)
    elif kind == PRODUCER_CLOSED:
        if p >= 0 and w.producers[p].open != 0:
            touch(w, r.topic_place)
            close_producer(w, p, at.mono_ns)
    elif kind == CONNECTION_OPENED:
        take_opened(w, r)
    elif kind == TIMED_OUT_SEND:
        time_out(w, o, at, r)
    elif c >= 0 and w.cnxs[c].open != 0:
        take_of_connection(w, o, r, at)


@inlined
def take_of_producer(w: World, o: Out, r: Record, at: Instant) -> None:
    """What a producer publishes, or its creation: either opens it."""
    p, amount = r.producer_place, Amount(r.num_messages, r.entry_bytes)
    if r.event_type == PRODUCER_CREATED:
        touch(w, r.topic_place)
    open_producer(w, p, at.mono_ns)
    if r.producer_name >= 0:
        w.producers[p].name = r.producer_name
    if r.event_type == PUBLISH:
        publish(w, o, at, p, amount)
    elif r.event_type == PUBLISH_DIGEST:
        sum_up(w, at, p, amount)
    else:
        use_topic(w, r.topic_place, at.mono_ns)


@compiled
def take_opened(w: World, r: Record) -> None:
    """A connection is opened, or what is known of it changes."""
    c = r.cnx_place
    open_connection(w, c)
    cnx = w.cnxs[c]
    cnx.supports_throttle = 1 if r.supports_throttle == 1 else 0
    if cnx.thread >= 0:
        w.threads[cnx.thread].pending -= cnx.buffered
    cnx.thread = r.io_thread_place
    if cnx.thread >= 0:
        thread = w.threads[cnx.thread]
        thread.pending += cnx.buffered
        thread.most_pending = max(thread.most_pending, thread.pending)
    if r.reports_pauses == 1 and corrects(w) and cnx.paused == 0:
        observe(w, c)


@compiled
def take_of_connection(w: World, o: Out, r: Record, at: Instant) -> None:
    """What happens to an open connection: its end, a receipt, or a pause that the feed reports."""
    kind, c = r.event_type, r.cnx_place
    cnx, now = w.cnxs[c], at.mono_ns
    if kind == CONNECTION_CLOSED:
        close_connection(w, o, at, now, c, BY_CLOSING)
    elif kind == THROTTLE_RECEIPT:
        take_receipt(w, o, at, c, r.request_id)
    elif corrects(w) and (kind == READS_PAUSED or kind == READS_RESUMED):
        observe(w, c)
        if kind == READS_PAUSED:
            take_pause(w, o, at, c)
        else:
            take_resume(w, o, at, c)
    elif kind == READS_PAUSED:
        cnx.seen_paused_ns, cnx.seen_resumed_ns = now, NEVER
    elif kind == READS_RESUMED and cnx.seen_paused_ns != NEVER:
        cnx.seen_resumed_ns = now


@compiled
def use_topic(w: World, t: int, now: int) -> None:
    """Use a topic; its first use builds its limiters."""
    topic = w.topics[t]
    topic.used_ns = now
    if topic.limiter >= 0:
        use(w, topic.limiter, now)
    if topic.group >= 0:
        use(w, topic.group, now)


@inlined
def publish(w: World, o: Out, at: Instant, p: int, amount: Amount) -> None:
    """One publish request: put it in flight, then charge topic, broker and resource group."""
    t = w.producers[p].topic
    topic = w.topics[t]
    count_messages(w, at, p, amount)
    start_request(w, o, at, p, amount.bytes)
    if topic.limiter >= 0:
        charge_limiter(w, o, at, topic.limiter, p, t, amount)
    broker = w.limiters[BROKER_LIMITER]
    if topic.exempt == 0 and (broker.limit_msgs > 0 or broker.limit_bytes > 0):
        charge_limiter(w, o, at, BROKER_LIMITER, p, t, amount)
    if topic.group >= 0:
        charge_limiter(w, o, at, topic.group, p, t, amount)


@compiled
def sum_up(w: World, at: Instant, p: int, amount: Amount) -> None:
    """The publishes of a digest: counted, and charged as one at its end, where no limiter acts.

    When they were published, and what the limiters did then, is not known. Nor is what is in
    flight: a digest has no `entry_added`.
    """
    topic = w.topics[w.producers[p].topic]
    count_messages(w, at, p, amount)
    if topic.limiter >= 0:
        charge_digest(w, topic.limiter, at.mono_ns, amount)
    if topic.exempt == 0:
        charge_digest(w, BROKER_LIMITER, at.mono_ns, amount)
    if topic.group >= 0:
        charge_digest(w, topic.group, at.mono_ns, amount)


@inlined
def count_messages(w: World, at: Instant, p: int, amount: Amount) -> None:
    """Count messages of a topic in the open window, and keep which topics of a connection have
    charged limiters, and which of them last."""
    t = w.producers[p].topic
    topic = w.topics[t]
    touch(w, t)
    topic.messages += amount.messages
    topic.bytes += amount.bytes
    topic.used_ns = at.mono_ns
    cnx, link = w.cnxs[w.producers[p].cnx], w.links[w.producers[p].link]
    cnx.publishes += 1
    link.charged_by, link.charged_no = p, cnx.publishes


@compiled
def end_window(w: World, next_mono: int, next_known: bool) -> Int:
    """Add paused time up to the end of the open window; returns that moment (ns).

    `next_mono` is the time of the key's next record, which bounds the end.
    """
    k = w.key[0]
    end = k["window_start_ms"] + k["window_ms"]
    if k["last_wall_ms"] == NULL:
        at = end * NS_PER_MS
    else:
        at = k["last_ns"] + (end - k["last_wall_ms"]) * NS_PER_MS
    if next_known and at > next_mono:
        at = next_mono
    settle_all(w, np.int64(at))
    return np.int64(at)


@compiled
def begin_window(w: World) -> None:
    """Clear the counts of the ended window and open the next one."""
    k = w.key[0]
    for i in range(k["touched"]):
        topic = w.topics[w.touched[i]]
        topic.touched, topic.messages, topic.bytes = 0, 0, 0
        topic.culprit_times, topic.shared_times, topic.collateral_times = 0, 0, 0
        topic.culprit_ns, topic.shared_ns, topic.collateral_ns = 0, 0, 0
        for j in range(CAUSES):
            topic.limited[j] = 0
            topic.by_reason[j] = 0
    k["touched"] = 0
    begin_counting(w)
    k["window_start_ms"] += k["window_ms"]
