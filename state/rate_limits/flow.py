"""The records of one broker in order, with its timers and windows between them.

The kernel stops with a status when it needs its caller: for more room for rows, to write a window,
to apply a policy or to carry out a restart. The next call continues at the same record.
"""

from __future__ import annotations

import numpy as np

from state.engine.clocks import wall_at, window_clock
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
    Feed,
    Instant,
    Int,
    Out,
    Send,
    World,
    compiled,
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


@compiled
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
        e["charged"], e["messages"], e["bytes"], e["has_least"] = 0, 0, 0, 0
        e["least_msgs"], e["least_bytes"], e["throttles"] = 0, 0, 0
        e["most_waiting"] = e["waiting"]
        e["observed_pauses"], e["predicted_pauses"] = 0, 0
    for c in range(len(w.cnxs)):
        cnx = w.cnxs[c]
        cnx["most_in_flight"], cnx["throttles"] = cnx["in_flight"], 0
        cnx["observed_pauses"], cnx["predicted_pauses"] = 0, 0
    for i in range(len(w.threads)):
        thread = w.threads[i]
        thread["most_pending"], thread["throttles"] = thread["pending"], 0
        thread["observed_pauses"], thread["predicted_pauses"] = 0, 0


@compiled
def no_room(w: World, o: Out, more: int) -> bool:
    """Whether the next step may write more rows than there is room for."""
    k = w.key[0]
    return (
        k["rows"] + k["waiting"] + 3 * len(w.cnxs) + more > len(o.rows)
        or k["snapshots"] + len(w.cnxs) + 1 > len(o.snapshots)
        or k["snapshot_topics"] + len(w.links) + 1 > len(o.snapshot_topics)
        or k["verdict_rows"] + LIMITERS_PER_PUBLISH > len(o.verdicts)
        or k["waiting_used"] + LIMITERS_PER_PUBLISH > len(w.waiting)
        or k["flight_used"] + 1 > len(w.flights)
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
            acts = w.cnxs[c]["look"] == mark and look(w, o, at, c)
        else:
            end_wait(w, o, at, c, place, mark)
        if acts:
            k["acted"], k["acted_ns"] = 1, now
    return DONE


@compiled
def run(w: World, o: Out, f: Feed, start: int, end: int) -> tuple[int, int]:
    """Judge records [start, end); returns a status and the record reached.

    After ASK the caller carries out the record; a policy already counts as the key's last record.
    """
    k = w.key[0]
    for i in range(start, end):
        if no_room(w, o, LIMITERS_PER_PUBLISH):
            return ROOM, i
        now, wall, kind, feed = f.mono[i], f.wall[i], f.kind[i], f.feed[i]
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
        k["last_ns"], k["last_wall_ms"], k["last_feed"], k["acted"] = now, wall, feed, 0
        if kind == POLICY:
            return ASK, i
        judge(w, o, f, i, Instant(now, wall, feed), kind)
    return DONE, end


@compiled
def judge(w: World, o: Out, f: Feed, i: int, at: Instant, kind: int) -> None:
    """Carry out one record."""
    c, t, p, now = f.cnx[i], f.topic[i], f.producer[i], at.mono_ns
    if kind == PUBLISH:
        open_producer(w, p, now)
        name_producer(w, p, f.producer_name[i])
        publish(w, o, at, p, Amount(f.messages[i], f.size[i]))
    elif kind == PUBLISH_DIGEST:
        open_producer(w, p, now)
        name_producer(w, p, f.producer_name[i])
        sum_up(w, at, p, Amount(f.messages[i], f.size[i]))
    elif kind == ENTRY_ADDED:
        if t >= 0:
            end_request(w, o, at, c, t, f.size[i])
    elif kind == PRODUCER_CREATED:
        touch(w, t)
        open_producer(w, p, now)
        name_producer(w, p, f.producer_name[i])
        use_topic(w, t, now)
    elif kind == PRODUCER_CLOSED:
        if p >= 0 and w.producers[p]["open"] != 0:
            touch(w, t)
            close_producer(w, p, now)
    elif kind == CONNECTION_OPENED:
        open_connection(w, c)
        cnx = w.cnxs[c]
        cnx["supports_throttle"] = 1 if f.supports[i] == 1 else 0
        if cnx["thread"] >= 0:
            w.threads[cnx["thread"]]["pending"] -= cnx["buffered"]
        cnx["thread"] = f.thread[i]
        if cnx["thread"] >= 0:
            thread = w.threads[cnx["thread"]]
            thread["pending"] += cnx["buffered"]
            thread["most_pending"] = max(thread["most_pending"], thread["pending"])
        if f.reports[i] == 1 and corrects(w) and cnx["paused"] == 0:
            observe(w, c)
    elif kind == CONNECTION_CLOSED:
        if c >= 0 and w.cnxs[c]["open"] != 0:
            close_connection(w, o, at, now, c, BY_CLOSING)
    elif kind == TIMED_OUT_SEND:
        send = Send(
            f.cnx_name[i], f.topic_name[i], f.producer_id[i], f.sequence_id[i], f.publish_ms[i]
        )
        time_out(w, o, at, p, t, send)
    elif c < 0 or w.cnxs[c]["open"] == 0:
        return
    elif kind == THROTTLE_RECEIPT:
        take_receipt(w, o, at, c, f.request[i])
    elif corrects(w) and (kind == READS_PAUSED or kind == READS_RESUMED):
        observe(w, c)
        if kind == READS_PAUSED:
            take_pause(w, o, at, c)
        else:
            take_resume(w, o, at, c)
    elif kind == READS_PAUSED:
        w.cnxs[c]["seen_paused_ns"], w.cnxs[c]["seen_resumed_ns"] = now, NEVER
    elif kind == READS_RESUMED and w.cnxs[c]["seen_paused_ns"] != NEVER:
        w.cnxs[c]["seen_resumed_ns"] = now


@compiled
def name_producer(w: World, p: int, name: int) -> None:
    """The latest name that an open producer gave."""
    if name >= 0:
        w.producers[p]["name"] = name


@compiled
def use_topic(w: World, t: int, now: int) -> None:
    """Use a topic; its first use builds its limiters."""
    topic = w.topics[t]
    topic["used_ns"] = now
    if topic["limiter"] >= 0:
        use(w, topic["limiter"], now)
    if topic["group"] >= 0:
        use(w, topic["group"], now)


@compiled
def publish(w: World, o: Out, at: Instant, p: int, amount: Amount) -> None:
    """One publish request: put it in flight, then charge topic, broker and resource group."""
    t = w.producers[p]["topic"]
    topic = w.topics[t]
    count_messages(w, at, p, amount)
    start_request(w, o, at, p, amount.bytes)
    if topic["limiter"] >= 0:
        charge_limiter(w, o, at, topic["limiter"], p, t, amount)
    broker = w.limiters[BROKER_LIMITER]
    if topic["exempt"] == 0 and (broker["limit_msgs"] > 0 or broker["limit_bytes"] > 0):
        charge_limiter(w, o, at, BROKER_LIMITER, p, t, amount)
    if topic["group"] >= 0:
        charge_limiter(w, o, at, topic["group"], p, t, amount)


@compiled
def sum_up(w: World, at: Instant, p: int, amount: Amount) -> None:
    """The publishes of a digest: counted, and charged as one at its end, where no limiter acts.

    When they were published, and what the limiters did then, is not known. Nor is what is in
    flight: a digest has no `entry_added`.
    """
    topic = w.topics[w.producers[p]["topic"]]
    count_messages(w, at, p, amount)
    if topic["limiter"] >= 0:
        charge_digest(w, topic["limiter"], at.mono_ns, amount)
    if topic["exempt"] == 0:
        charge_digest(w, BROKER_LIMITER, at.mono_ns, amount)
    if topic["group"] >= 0:
        charge_digest(w, topic["group"], at.mono_ns, amount)


@compiled
def count_messages(w: World, at: Instant, p: int, amount: Amount) -> None:
    """Count messages of a topic in the open window, and keep which topics of a connection have
    charged limiters, and which of them last."""
    t = w.producers[p]["topic"]
    topic = w.topics[t]
    touch(w, t)
    topic["messages"] += amount.messages
    topic["bytes"] += amount.bytes
    topic["used_ns"] = at.mono_ns
    cnx, link = w.cnxs[w.producers[p]["cnx"]], w.links[w.producers[p]["link"]]
    cnx["publishes"] += 1
    link["charged_by"], link["charged_no"] = p, cnx["publishes"]


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
        topic["touched"], topic["messages"], topic["bytes"] = 0, 0, 0
        topic["culprit_times"], topic["shared_times"], topic["collateral_times"] = 0, 0, 0
        topic["culprit_ns"], topic["shared_ns"], topic["collateral_ns"] = 0, 0, 0
        for j in range(CAUSES):
            topic["limited"][j] = 0
            topic["by_reason"][j] = 0
    k["touched"] = 0
    begin_counting(w)
    k["window_start_ms"] += k["window_ms"]
