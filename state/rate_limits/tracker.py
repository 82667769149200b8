"""Connection throttle tracker (`per_type`) and who pays for a pause.

A connection has a state per throttle type; reads are paused while any state is above 0. Topic and
resource-group marks count, the other types are flags. An unmark has no floor.
"""

from __future__ import annotations

import numpy as np

from state.rate_limits.layout import (
    BROKER,
    CONNECTION,
    DROPPED,
    IO_THREAD,
    MARK,
    NEVER,
    NULL,
    RESOURCE_GROUP,
    STATE_CHANGED,
    TOPIC,
    TYPE_CHANGED,
    TYPES,
    UNMARK,
    Array,
    Int,
    Out,
    World,
    compiled,
)


@compiled
def any_active(states: Array) -> bool:
    """Reads are paused while some type is above 0."""
    for i in range(TYPES):
        if states[i] > 0:
            return True
    return False


@compiled
def mark_state(states: Array, kind: int) -> Int:
    """Mark a type; answers the transition."""
    active = any_active(states)
    if kind == TOPIC or kind == RESOURCE_GROUP:
        states[kind] += 1
    else:
        was = states[kind]
        states[kind] = 1
        if was != 0:
            return DROPPED
    return TYPE_CHANGED if active else STATE_CHANGED


@compiled
def unmark_state(states: Array, kind: int) -> Int:
    """Unmark a type; answers the transition. Counting types have no floor."""
    if kind == TOPIC or kind == RESOURCE_GROUP:
        states[kind] -= 1
    else:
        was = states[kind]
        states[kind] = 0
        if was != 1:
            return DROPPED
    return TYPE_CHANGED if any_active(states) else STATE_CHANGED


@compiled
def touch(w: World, t: int) -> None:
    """The topic has an event or a level in the open window."""
    if w.topics[t]["touched"] == 0:
        w.topics[t]["touched"] = 1
        k = w.key[0]
        w.touched[k["touched"]] = t
        k["touched"] += 1


@compiled
def settle_link(w: World, link: int, now: int) -> None:
    """Book the paused time of one topic on a paused connection up to now."""
    e = w.links[link]
    passed = now - e["since_ns"]
    if passed <= 0:
        return
    e["since_ns"] = now
    topic = w.topics[e["topic"]]
    if e["culprit"] != 0:
        topic["culprit_ns"] += passed
    else:
        topic["collateral_ns"] += passed
    states = w.cnxs[e["cnx"]]["states"]
    for i in range(BROKER + 1):
        if states[i] > 0:
            topic["by_reason"][i] += passed
    touch(w, e["topic"])


@compiled
def settle(w: World, c: int, now: int) -> None:
    """Book the paused time of every topic of a connection up to now, if reads are paused."""
    if w.cnxs[c]["paused"] == 0:
        return
    link = w.cnxs[c]["first_link"]
    while link >= 0:
        if w.links[link]["producers"] > 0:
            settle_link(w, link, now)
        link = w.links[link]["next"]


@compiled
def _begin_pause(w: World, c: int, now: int, kind: int, culprit: int) -> None:
    cnx = w.cnxs[c]
    cnx["paused"] = 1
    cnx["paused_at_ns"] = now
    w.key[0]["paused_cnxs"] += 1
    link = cnx["first_link"]
    while link >= 0:
        e = w.links[link]
        e["since_ns"] = now
        e["culprit"] = 0
        if e["producers"] > 0:
            topic = w.topics[e["topic"]]
            topic["limited"][kind] += 1
            if e["topic"] == culprit:
                topic["culprit_times"] += 1
            else:
                topic["collateral_times"] += 1
            touch(w, e["topic"])
        link = e["next"]


@compiled
def _blame(w: World, c: int, now: int, culprit: int) -> None:
    """From its first mark as culprit a topic pays for its own pause."""
    link = w.cnxs[c]["first_link"]
    while link >= 0:
        e = w.links[link]
        if e["topic"] == culprit:
            if e["culprit"] == 0:
                if e["producers"] > 0:
                    settle_link(w, link, now)
                e["culprit"] = 1
            return
        link = e["next"]


@compiled
def _snapshot(w: World, o: Out, c: int) -> Int:
    """The topics with a producer on the connection, written once until they change."""
    cnx = w.cnxs[c]
    if cnx["snapshot"] >= 0:
        return cnx["snapshot"]
    k = w.key[0]
    n = k["snapshot_topics"]
    link = cnx["first_link"]
    while link >= 0:
        if w.links[link]["producers"] > 0:
            o.snapshot_topics[n] = w.links[link]["topic"]
            n += 1
        link = w.links[link]["next"]
    k["snapshot_topics"] = n
    cnx["snapshot"] = k["snapshots"]
    o.snapshots[k["snapshots"]] = n
    k["snapshots"] += 1
    return cnx["snapshot"]


@compiled
def _write(
    w: World, o: Out, now: int, wall: int, feed: int, c: int, producer: int, topic: int,
    action: int, kind: int, transition: int, rule: int, culprit: int,
) -> Int:
    """Write the columns that every row has; answers its position."""
    k = w.key[0]
    if k["row_ns"] != now:
        k["row_ns"], k["row_no"] = now, 0
    n = k["rows"]
    row = o.rows[n]
    row["ts_mono_ns"], row["ts_wall_ms"], row["feed"] = now, wall, feed
    row["row_no"] = k["row_no"]
    row["cnx"], row["producer"], row["topic"], row["culprit"] = c, producer, topic, culprit
    row["producer_name"] = w.producers[producer]["name"] if producer >= 0 else -1
    row["action"], row["type"], row["transition"], row["rule"] = action, kind, transition, rule
    row["reads_paused"] = w.cnxs[c]["paused"]
    row["snapshot"] = _snapshot(w, o, c) if w.cnxs[c]["paused"] != 0 else -1
    row["has"], row["balance_msgs"], row["balance_bytes"] = 0, 0, 0
    row["pause_ns"], row["waiting"], row["observed_ns"] = NULL, 0, NULL
    k["rows"] = n + 1
    k["row_no"] += 1
    return n


@compiled
def mark(
    w: World, o: Out, now: int, wall: int, feed: int, c: int, producer: int, topic: int,
    kind: int, rule: int, culprit: int,
) -> Int:
    """Mark a connection and write the row; answers its position in `o.rows`."""
    cnx = w.cnxs[c]
    states = cnx["states"]
    if states[kind] <= 0:
        settle(w, c, now)
    transition = mark_state(states, kind)
    if cnx["paused"] == 0 and any_active(states):
        _begin_pause(w, c, now, kind, culprit)
    if cnx["paused"] != 0:
        _blame(w, c, now, culprit)
    if (kind == CONNECTION or kind == IO_THREAD) and transition != DROPPED:
        cnx["mark_producer"][kind] = producer
        cnx["mark_topic"][kind] = culprit
    return _write(
        w, o, now, wall, feed, c, producer, topic, MARK, kind, transition, rule, culprit
    )


@compiled
def unmark(
    w: World, o: Out, now: int, settle_ns: int, wall: int, feed: int, c: int, producer: int,
    topic: int, kind: int, rule: int, culprit: int,
) -> Int:
    """Unmark a connection and write the row; paused time counts up to `settle_ns`."""
    cnx = w.cnxs[c]
    states = cnx["states"]
    if states[kind] == 1 or (kind != TOPIC and kind != RESOURCE_GROUP):
        settle(w, c, settle_ns)
    transition = unmark_state(states, kind)
    observed = NULL
    if cnx["paused"] != 0 and not any_active(states):
        cnx["paused"] = 0
        w.key[0]["paused_cnxs"] -= 1
        if cnx["seen_resumed_ns"] != NEVER and cnx["seen_resumed_ns"] >= cnx["paused_at_ns"]:
            observed = cnx["seen_resumed_ns"] - cnx["seen_paused_ns"]
            cnx["seen_paused_ns"], cnx["seen_resumed_ns"] = NEVER, NEVER
    n = _write(
        w, o, now, wall, feed, c, producer, topic, UNMARK, kind, transition, rule, culprit
    )
    o.rows[n]["observed_ns"] = observed
    return n


@compiled
def join_topic(w: World, link: int, now: int) -> None:
    """A first producer of a topic has come to a connection."""
    e = w.links[link]
    cnx = w.cnxs[e["cnx"]]
    cnx["snapshot"] = np.int64(-1)
    if cnx["paused"] != 0:
        # a culprit that left and came back in one pause stays one
        e["since_ns"] = now


@compiled
def leave_topic(w: World, link: int, now: int) -> None:
    """The last producer of a topic is leaving a connection: book its time before it goes."""
    e = w.links[link]
    if w.cnxs[e["cnx"]]["paused"] != 0:
        settle_link(w, link, now)
    w.cnxs[e["cnx"]]["snapshot"] = np.int64(-1)
