"""Passes of a key, which are due at the multiples of an interval, and what broker starts, gaps and
changes of settings before them do to it."""

from __future__ import annotations

import numpy as np

from state.backlog import layout as L
from state.backlog.ages import trim
from state.backlog.check import check, look_up, not_checked
from state.backlog.group_checks import check_groups
from state.backlog.layout import LARGEST, LEDGERS, NULL, USED, Int, Out, World, compiled
from state.engine import tables
from state.engine.broker_changes import GAPS, STARTS, rank_at

NS_PER_MS = np.int64(1_000_000)
SILENT = np.int64(4096)
"""Checks since the last record of a topic, beyond which they become fewer."""


# -- shared records --------------------------------------------------------------------------


@compiled
def _distance(w: World, key: Int, at_ms: Int) -> Int:
    """From one pass of a key to the next one at a time: it doubles with the silence of the topic."""
    interval: Int = w.timeline.turns[w.store.links[key].turn - 1].interval_ms
    silence, distance = (at_ms - w.store.keys[key].last_ms) // interval, interval
    while silence >= SILENT:
        silence >>= 1
        distance <<= 1
    return distance


@compiled
def set_due(w: World, key: Int, since_ms: Int) -> None:
    """Set the next pass of a key to the first one that is due at or after a time."""
    due = since_ms
    distance = _distance(w, key, due)
    while due % distance != 0:
        if due > LARGEST - distance:
            due = LARGEST
            break
        due += distance - due % distance
        distance = _distance(w, key, due)  # a pass further on may be one that is left out
    w.store.links[key].due_ms = due


@compiled
def _forget_producers(w: World, key: Int) -> None:
    """The connections of a topic's producers are gone."""
    while w.producers_of.first[key] >= 0:
        first = w.producers_of.first[key]
        p = w.producers.rows[first]
        tables.release(w.producers_of, key, first)
        tables.drop(w.producers, (key, p.connection, p.producer))
    w.store.links[key].producers = 0


@compiled
def start_anew(w: World, key: Int) -> None:
    """The broker of a key has started."""
    w.store.keys[key].cached = 0
    _forget_producers(w, key)


@compiled
def lose_sight(w: World, key: Int) -> None:
    """Records of the key's broker are missing: positions of cursors, contents of ledgers and
    producers are unknown until they are stated.
    """
    w.store.keys[key].unseen = L.CURSORS | L.SIZES
    _forget_producers(w, key)
    not_checked(w, key)


@compiled
def begin_if_empty(w: World, key: Int) -> None:
    """A topic without ledgers and cursors counts as new; after a gap of its broker it is unknown."""
    e, k = w.store.links[key], w.store.keys[key]
    if w.store.spans[LEDGERS, key, USED] > 0 or e.cursors > 0:
        return
    k.unseen = 0
    for turn in range(w.timeline.turn_start[e.place], e.turn):
        if w.timeline.turns[turn].start == GAPS:
            k.unseen = L.CURSORS | L.SIZES


# -- passes ----------------------------------------------------------------------------------


@compiled
def _mono_at(w: World, key: Int, at_ms: Int, next_ns: Int, next_broker: Int) -> Int:
    """Monotonic time at a wall time, from the key's last record, at most that of the next one."""
    k = w.store.keys[key]
    if k.last_ns == NULL:
        return NULL
    mono = k.last_ns + (at_ms - k.last_ms) * NS_PER_MS
    if next_ns != NULL and next_broker == k.broker:
        mono = min(mono, next_ns)
    return mono


@compiled
def _is_full(w: World, o: Out, key: Int) -> bool:
    """Whether the rows of one pass may not fit."""
    p, cursors = w.store.settings[0], w.store.links[key].cursors
    return bool(
        p.checks + 1 > len(o.checks)
        or p.evictions + cursors + 1 > len(o.evictions)
        or p.subscriptions + cursors > len(o.subscriptions)
        or p.lags + cursors + 1 > len(o.lags)
        or p.states + 2 * cursors > len(o.states)
        or cursors + 1 > len(w.store.order)
    )


@compiled
def _pass(w: World, o: Out, key: Int, rank: Int, next_ns: Int, next_broker: Int) -> bool:
    """Run the pass of a key that is due, after so many shared records; returns whether it has rows."""
    k, due = w.store.keys[key], w.store.links[key].due_ms
    if k.unseen != 0 or (k.kafka == 0 and k.has_state == 0):
        if k.kafka == 0:
            not_checked(w, key)
        return False
    look_up(w, key, rank)
    mono_ns = _mono_at(w, key, due, next_ns, next_broker)
    if k.kafka == 0:
        return check(w, o, key, due, mono_ns)
    says = check_groups(w, o, key, due, mono_ns)
    begin_if_empty(w, key)
    return says


@compiled
def _advance(w: World, o: Out, key: Int, to_ms: Int, next_ns: Int, next_broker: Int) -> bool:
    """Run the passes that are due before a time; False if there was no room to continue.

    If a pass has no rows, later ones have none while nothing changes: only the last ones are run,
    which cursors remember.
    """
    e = w.store.links[key]
    while e.due_ms < to_ms:
        if _is_full(w, o, key):
            return False
        due, says = e.due_ms, False
        rank = rank_at(w.timeline.shared_ms, due + 1)
        if w.timeline.turns[e.turn - 1].enabled != 0:
            says = _pass(w, o, key, rank, next_ns, next_broker)
        trim(w.store, key)
        since = due + 1
        if not says:
            end = to_ms
            if rank < len(w.timeline.shared_ms):
                end = min(end, w.timeline.shared_ms[rank])
            since = max(since, end - w.store.settings[0].most_checks * _distance(w, key, end))
        set_due(w, key, since)
    return True


@compiled
def reach(
    w: World, o: Out, key: Int, to_ms: Int, rank: Int, next_ns: Int, next_broker: Int
) -> bool:
    """Move a key to a time, past the turns before a rank; False if there was no room."""
    e = w.store.links[key]
    if w.store.keys[key].last_ms == NULL or w.store.keys[key].policy_topic < 0:
        return True
    end = w.timeline.turn_start[e.place + 1]
    while e.turn < end and w.timeline.turns[e.turn].rank < rank:
        t = w.timeline.turns[e.turn]
        if not _advance(w, o, key, t.at_ms, next_ns, next_broker):
            return False
        if t.start == STARTS:
            start_anew(w, key)
        elif t.start == GAPS:
            lose_sight(w, key)
        e.turn += 1
        set_due(w, key, t.at_ms)
    return _advance(w, o, key, to_ms, next_ns, next_broker)
