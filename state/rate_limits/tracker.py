"""The throttle tracker of connections, and the class of a pause for each topic.

A connection has a state per throttle type. `per_type`: marks of topics and resource groups are
counted, the other types are flags. `shared_counter`: one counter for all types, which also counts
marks of the broker. The counter has no lower bound.

Reads are paused while an active mark blocks them. Without the exchange of PIP-385 every mark does;
with it, those whose client has not confirmed or was not asked to. A topic on a paused connection is
culprit (its own limit is used up), shared (a limit that it shares holds the reads: of its resource
group, the broker, the connection or the IO thread) or collateral.
"""

from __future__ import annotations

import numpy as np

from state.rate_limits.layout import (
    BROKER,
    BROKER_LIMITER,
    CAUSES,
    CONNECTION,
    DROPPED,
    IO_THREAD,
    LOST_SIGHT,
    MARK,
    MODEL_ALL,
    MODEL_NONE,
    MODEL_OBSERVED,
    NEVER,
    NO_EXCHANGE,
    NOT_SUPPORTED,
    NOT_WAITED,
    NULL,
    RECEIVED,
    RESOURCE_GROUP,
    STATE_CHANGED,
    TOPIC,
    TYPE_CHANGED,
    TYPES,
    UNKNOWN,
    UNMARK,
    WAITING_FOR,
    Array,
    Instant,
    Int,
    Mark,
    Out,
    World,
    compiled,
)
from state.rate_limits.timers import schedule_look


@compiled
def any_active(states: Array) -> bool:
    """Whether a type is above 0."""
    for i in range(TYPES):
        if states[i] > 0:
            return True
    return False


@compiled
def _sum(states: Array) -> Int:
    total = np.int64(0)
    for i in range(TYPES):
        total += states[i]
    return total


@compiled
def counts(kind: int, shared: int) -> bool:
    """Whether marks of a type are counted; the others are a flag."""
    return kind == TOPIC or kind == RESOURCE_GROUP or (shared != 0 and kind == BROKER)


@compiled
def mark_state(states: Array, kind: int, shared: int) -> Int:
    """Mark a type; returns the transition. `shared` = one counter for all types."""
    active = any_active(states)
    if counts(kind, shared):
        states[kind] += 1
    else:
        was = states[kind]
        states[kind] = 1
        if was != 0:
            return DROPPED
    if shared != 0:
        return STATE_CHANGED if _sum(states) == 1 else TYPE_CHANGED
    return TYPE_CHANGED if active else STATE_CHANGED


@compiled
def unmark_state(states: Array, kind: int, shared: int) -> Int:
    """Unmark a type; returns the transition. Counters have no lower bound."""
    if counts(kind, shared):
        states[kind] -= 1
    else:
        was = states[kind]
        states[kind] = 0
        if was != 1:
            return DROPPED
    if shared != 0:
        return STATE_CHANGED if _sum(states) == 0 else TYPE_CHANGED
    return TYPE_CHANGED if any_active(states) else STATE_CHANGED


@compiled
def blocks(receipt: int) -> bool:
    """Whether a mark with this receipt state holds the reads of its connection."""
    return receipt != RECEIVED and receipt != WAITING_FOR


@compiled
def corrects(w: World) -> bool:
    """Whether pauses that the feed reports correct those of the model. No released broker has the
    exchange of PIP-385: with it, the pauses are those of the model.
    """
    k = w.key[0]
    return k["ignores_pauses"] == 0 and k["protocol"] == 0


@compiled
def holds(w: World, c: int, receipt: int) -> bool:
    """Whether a mark holds the reads of its connection now: on an observed one, while the feed
    says that they are paused.
    """
    cnx = w.cnxs[c]
    return blocks(receipt) and (cnx.observed == 0 or cnx.stopped != 0)


@compiled
def is_overdue(w: World, c: int, marked_ns: int, now: int) -> bool:
    """Whether the feed has not reported the pause of a mark in the time that it has for it."""
    return w.cnxs[c].stopped == 0 and now - marked_ns > w.key[0]["observed_wait_ns"]


@compiled
def touch(w: World, t: int) -> None:
    """Mark a topic as having an event or a level in the open window."""
    if w.topics[t].touched == 0:
        w.topics[t].touched = 1
        k = w.key[0]
        w.touched[k["touched"]] = t
        k["touched"] += 1


@compiled
def settle_link(w: World, link: int, now: int) -> None:
    """Add the paused time of one topic on a paused connection up to now."""
    e = w.links[link]
    passed = now - e.since_ns
    if passed <= 0:
        return
    e.since_ns = now
    topic = w.topics[e.topic]
    blocking = w.cnxs[e.cnx].blocking
    if e.culprit != 0:
        topic.culprit_ns += passed
    elif (
        e.held > 0
        or blocking[BROKER] > 0
        or blocking[CONNECTION] > 0
        or blocking[IO_THREAD] > 0
        or blocking[UNKNOWN] > 0
    ):
        topic.shared_ns += passed
    else:
        topic.collateral_ns += passed
    for i in range(CAUSES):
        if blocking[i] > 0:
            topic.by_reason[i] += passed
    touch(w, e.topic)


@compiled
def settle(w: World, c: int, now: int) -> None:
    """Add the paused time of every topic of a connection up to now, if reads are paused."""
    if w.cnxs[c].paused == 0:
        return
    link = w.cnxs[c].first_link
    while link >= 0:
        if w.links[link].producers > 0:
            settle_link(w, link, now)
        link = w.links[link].next


@compiled
def settle_all(w: World, now: int) -> None:
    """Add the paused time of every connection up to now."""
    for c in range(len(w.cnxs)):
        settle(w, c, now)


@compiled
def _hold(w: World, c: int, group: int, now: int, more: int) -> None:
    """Count one more (1) or one less (-1) mark of a resource group that holds the reads of its
    topics.
    """
    cnx = w.cnxs[c]
    link = cnx.first_link
    while link >= 0:
        e = w.links[link]
        if w.topics[e.topic].group == group:
            changes = e.held == (0 if more > 0 else 1)
            if changes and cnx.paused != 0 and e.producers > 0:
                settle_link(w, link, now)
            e.held += more
        link = e.next


@compiled
def marks_of_group(w: World, c: int, group: int) -> Int:
    """How many marks of a resource group hold the reads of a connection."""
    found = np.int64(0)
    if group < 0 or w.cnxs[c].blocking[RESOURCE_GROUP] == 0 or w.limiters[group].waiting == 0:
        return found
    place = w.fifos.first[group]
    while place >= 0:
        x = w.waiting.rows[place]
        if w.producers[x.producer].cnx == c and holds(w, c, x.receipt):
            found += 1
        place = w.fifos.following[place]
    return found


@compiled
def regroup(w: World) -> None:
    """Recount the marks that hold topics, after their resource groups have changed."""
    for link in range(len(w.links)):
        e = w.links[link]
        if e.attached != 0:
            e.held = marks_of_group(w, e.cnx, w.topics[e.topic].group)


@compiled
def _begin_pause(w: World, c: int, now: int, kind: int, owner: int, trigger: int) -> None:
    cnx = w.cnxs[c]
    cnx.paused = 1
    cnx.paused_at_ns = now
    w.key[0]["paused_cnxs"] += 1
    link = cnx.first_link
    while link >= 0:
        e = w.links[link]
        e.since_ns = now
        e.culprit = 0
        if e.producers > 0:
            topic = w.topics[e.topic]
            topic.limited[kind] += 1
            if kind == TOPIC and e.topic == trigger:
                topic.culprit_times += 1
            elif kind == TOPIC or (kind == RESOURCE_GROUP and topic.group != owner):
                topic.collateral_times += 1
            else:
                topic.shared_times += 1
            touch(w, e.topic)
        link = e.next


@compiled
def blame(w: World, c: int, now: int, culprit: int) -> None:
    """Make a topic culprit of the pause, from the first mark of its own limit on."""
    link = w.cnxs[c].first_link
    while link >= 0:
        e = w.links[link]
        if e.topic == culprit:
            if e.culprit == 0:
                if e.producers > 0:
                    settle_link(w, link, now)
                e.culprit = 1
            return
        link = e.next


@compiled
def start_blocking(w: World, c: int, now: int, kind: int, owner: int, trigger: int) -> None:
    """Count one more active mark that holds the reads of a connection.

    `owner` is the place of the limiter that set the mark, `trigger` the topic of its publish.
    """
    cnx = w.cnxs[c]
    if cnx.blocking[kind] == 0:
        settle(w, c, now)
    if kind == RESOURCE_GROUP:
        _hold(w, c, owner, now, 1)
    cnx.blocking[kind] += 1
    if cnx.paused == 0:
        _begin_pause(w, c, now, kind, owner, trigger)


@compiled
def _stop_blocking(w: World, c: int, settle_ns: int, kind: int, owner: int) -> Int:
    """End a mark that held the reads; returns the pause seen by the feed if reads resume."""
    cnx = w.cnxs[c]
    blocking = cnx.blocking
    if blocking[kind] == 1:
        settle(w, c, settle_ns)
    if kind == RESOURCE_GROUP:
        _hold(w, c, owner, settle_ns, -1)
    blocking[kind] -= 1
    for i in range(CAUSES):
        if blocking[i] > 0:
            return NULL
    cnx.paused = 0
    w.key[0]["paused_cnxs"] -= 1
    if cnx.observed != 0:
        began = cnx.seen_paused_ns
        return NULL if began == NEVER else np.int64(settle_ns - began)
    if cnx.seen_resumed_ns == NEVER or cnx.seen_resumed_ns < cnx.paused_at_ns:
        return NULL
    observed = cnx.seen_resumed_ns - cnx.seen_paused_ns
    cnx.seen_paused_ns, cnx.seen_resumed_ns = NEVER, NEVER
    return observed


@compiled
def _snapshot(w: World, o: Out, c: int) -> Int:
    """The topics with a producer on the connection, written once until they change."""
    cnx = w.cnxs[c]
    if cnx.snapshot >= 0:
        return cnx.snapshot
    k = w.key[0]
    n = k["snapshot_topics"]
    link = cnx.first_link
    while link >= 0:
        if w.links[link].producers > 0:
            o.snapshot_topics[n] = w.links[link].topic
            n += 1
        link = w.links[link].next
    k["snapshot_topics"] = n
    cnx.snapshot = k["snapshots"]
    o.snapshots[k["snapshots"]] = n
    k["snapshots"] += 1
    return cnx.snapshot


@compiled
def write_row(
    w: World,
    o: Out,
    at: Instant,
    m: Mark,
    action: int,
    transition: int,
    request: int,
    receipt: int,
) -> Int:
    """Write the columns that every row of a mark has; returns its position."""
    k = w.key[0]
    if k["row_ns"] != at.mono_ns:
        k["row_ns"], k["row_no"] = at.mono_ns, 0
    n = k["rows"]
    row = o.rows[n]
    row["ts_mono_ns"], row["ts_wall_ms"], row["feed"] = at
    row["row_no"] = k["row_no"]
    row["cnx"], row["producer"], row["topic"] = m.cnx, m.producer, m.topic
    row["owner"], row["trigger"] = m.owner, m.trigger
    row["producer_name"] = w.producers[m.producer].name if m.producer >= 0 else -1
    row["action"], row["type"], row["transition"], row["rule"] = action, m.kind, transition, m.rule
    row["reads_paused"] = w.cnxs[m.cnx].paused
    row["snapshot"] = _snapshot(w, o, m.cnx) if w.cnxs[m.cnx].paused != 0 else -1
    row["has"], row["balance_msgs"], row["balance_bytes"] = 0, 0, 0
    row["pause_ns"], row["waiting"], row["observed_ns"], row["seen_ns"] = NULL, 0, NULL, NULL
    row["request"], row["receipt"] = request, receipt
    k["rows"] = n + 1
    k["row_no"] += 1
    return n


@compiled
def awaits_receipt(w: World, kind: int) -> bool:
    """Whether the broker waits for the receipt of a mark of this type: rule 2 of the exchange."""
    return (
        kind == TOPIC
        or kind == RESOURCE_GROUP
        or (kind == BROKER and w.key[0]["broker_waits"] != 0)
    )


@compiled
def receipt_of(w: World, c: int, kind: int) -> Int:
    """The receipt state of a new mark under PIP-385: rules 1 to 3 of its exchange."""
    k = w.key[0]
    if k["protocol"] == 0:
        return NO_EXCHANGE
    model = k["receipt_model"]
    if model == MODEL_NONE or (model != MODEL_ALL and w.cnxs[c].supports_throttle == 0):
        return NOT_SUPPORTED
    if awaits_receipt(w, kind):
        return WAITING_FOR if model == MODEL_OBSERVED else RECEIVED
    return NOT_WAITED


@compiled
def flag_owner(w: World, c: int, kind: int) -> Int:
    """The place of the limiter, connection or IO thread whose mark set a flag."""
    if kind == IO_THREAD:
        return np.int64(w.cnxs[c].mark_thread)
    return np.int64(c) if kind == CONNECTION else BROKER_LIMITER


@compiled
def mark(w: World, o: Out, at: Instant, m: Mark) -> Int:
    """Mark a connection and write the row; returns its position in `o.rows`."""
    cnx, c, kind, now = w.cnxs[m.cnx], m.cnx, m.kind, at.mono_ns
    shared = w.key[0]["shared"]
    transition = mark_state(cnx.states, kind, shared)
    receipt = NO_EXCHANGE
    if transition != DROPPED:
        receipt = receipt_of(w, c, kind)
        if holds(w, c, receipt):
            start_blocking(w, c, now, kind, m.owner, m.trigger)
        elif cnx.observed != 0 and cnx.look == NULL:
            schedule_look(w, now + w.key[0]["observed_wait_ns"], c)
        if not counts(kind, shared):
            cnx.flag_mark[kind], cnx.flag_ns[kind] = w.key[0]["timer_order"], now
            w.key[0]["timer_order"] += 1
            cnx.mark_producer[kind], cnx.mark_topic[kind] = m.producer, m.trigger
            if kind == IO_THREAD:
                cnx.mark_thread = m.owner
            cnx.flag_receipt[kind], cnx.flag_request[kind] = receipt, NULL
    if kind == TOPIC and cnx.paused != 0:
        blame(w, c, now, m.trigger)
    if kind == CONNECTION:
        cnx.throttles += 1
    elif kind == IO_THREAD and cnx.thread >= 0:
        w.threads[cnx.thread].throttles += 1
    return write_row(w, o, at, m, MARK, transition, NULL, receipt)


@compiled
def unmark(
    w: World, o: Out, at: Instant, settle_ns: int, m: Mark, request: Int, receipt: Int
) -> Int:
    """Unmark a connection and write the row; paused time counts up to `settle_ns`.

    `request` and `receipt` are those of the mark that ends, if marks are counted; a flag has its
    own.
    """
    cnx, kind = w.cnxs[m.cnx], m.kind
    shared = w.key[0]["shared"]
    transition = unmark_state(cnx.states, kind, shared)
    observed = NULL
    if not counts(kind, shared):
        request, receipt = cnx.flag_request[kind], cnx.flag_receipt[kind]
        if transition != DROPPED:
            cnx.mark_producer[kind], cnx.mark_topic[kind] = -1, -1
            cnx.flag_request[kind], cnx.flag_receipt[kind] = NULL, NO_EXCHANGE
            cnx.flag_mark[kind], cnx.flag_ns[kind] = NULL, 0
            if kind == IO_THREAD:
                cnx.mark_thread = -1
    if transition == DROPPED:
        request, receipt = NULL, NO_EXCHANGE
    elif holds(w, m.cnx, receipt):
        observed = _stop_blocking(w, m.cnx, settle_ns, kind, m.owner)
    n = write_row(w, o, at, m, UNMARK, transition, request, receipt)
    o.rows[n]["observed_ns"] = observed
    o.rows[n]["seen_ns"] = settle_ns if m.rule == LOST_SIGHT else NULL
    return n


@compiled
def join_topic(w: World, link: int, now: int) -> None:
    """Link a topic to a connection, at its first producer there."""
    e = w.links[link]
    for i in range(CAUSES):
        e.throttled_ms[i] = 0
    cnx = w.cnxs[e.cnx]
    cnx.snapshot = np.int64(-1)
    if cnx.paused != 0:
        # a culprit that left and came back in one pause stays one
        e.since_ns = now


@compiled
def leave_topic(w: World, link: int, now: int) -> None:
    """Unlink a topic from a connection at its last producer, after its time was added."""
    e = w.links[link]
    if w.cnxs[e.cnx].paused != 0:
        settle_link(w, link, now)
    e.charged_by = -1
    w.cnxs[e.cnx].snapshot = np.int64(-1)
