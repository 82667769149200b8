"""Time of a topic: the window that is open, and the timers of its consumers."""

from __future__ import annotations

import numpy as np

from state.chunks.consumer import is_closed, next_pass
from state.chunks.layout import NOBODY, NULL, Int, World, compiled, inlined
from state.engine.tables import each

NS_PER_MS = np.int64(1_000_000)


@inlined
def touch(w: World, key: Int, at_ms: Int) -> None:
    """Open the window that contains this time."""
    k, period = w.keys[key], w.settings[0].window_ms
    if k.open == 0:
        k.open, k.window = 1, at_ms // period * period


@inlined
def mono_at(w: World, key: Int, at_ms: Int) -> Int:
    """Monotonic time at a wall time, from the topic's last record, at most that of the next one."""
    k, link = w.keys[key], w.links[key]
    if k.last_ns == NULL:
        return NULL
    mono = k.last_ns + (at_ms - k.last_ms) * NS_PER_MS
    if link.next_ns != NULL and link.next_broker == k.broker:
        mono = min(mono, link.next_ns)
    return mono


@compiled
def set_timer(w: World, key: Int, at_ms: Int, consumer: Int) -> None:
    """Set the timer that fires to one of a topic or, if given, of a consumer."""
    c, k = w.timer[0], w.keys[key]
    c.key, c.ts_wall_ms, c.ts_mono_ns = key, at_ms, mono_at(w, key, at_ms)
    c.broker, c.source_feed = k.broker, k.source_feed
    c.sub = w.consumers[consumer].sub if consumer >= 0 else NOBODY
    c.consumer, c.uuid = consumer, NOBODY
    c.chunk_id = c.num_chunks = c.ledger_id = c.entry_id = NULL


@compiled
def earliest(w: World, key: Int, now: Int) -> Int:
    """The consumer of a topic with the earliest timer, NOBODY without one; sets `due_ms` of the
    topic.

    Timers of one time fire in the order in which they were set. A timer that a pass has set again
    comes after those that records set at the same time, so a later start comes first.
    """
    found: Int
    found, due, begin, order = NOBODY, NULL, NULL, np.int64(0)
    for consumer in each(w.consumers_of, key):
        e = w.consumers[consumer]
        mine, start, number = next_pass(w.settings[0], e, now), e.start_ms, e.start_order
        if is_closed(e):
            mine = e.closed_ms + w.settings[0].expiry_ms
            start, number = e.closed_ms, e.closed_order
        if mine != NULL and (
            found < 0
            or mine < due
            or (mine == due and (start > begin or (start == begin and number < order)))
        ):
            found, due, begin, order = consumer, mine, start, number
    w.keys[key].due_ms = due
    return found
