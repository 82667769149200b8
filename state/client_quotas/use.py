"""What clients did in the open windows: charges of entities, and use by client, api and topic."""

from __future__ import annotations

import numpy as np

from state.client_quotas import layout as L
from state.client_quotas.layout import NOBODY, NULL, Int, Record, World, inlined
from state.engine.names import NONE
from state.engine.tables import at

_NO_NAME = np.int64(NONE)
_ZERO = np.int64(0)


@inlined
def window_of(w: World, at_ms: Int) -> Int:
    """The start of the window that a time lies in."""
    return at_ms // w.settings[0]["period_ms"] * w.settings[0]["period_ms"]


@inlined
def _use(w: World, r: Record, window: Int, topic: Int) -> Int:
    """The use of a topic by the client of a request in the open window; mostly that of the request
    of its kind before."""
    key, api, who, client = r.key, r.api, r.principal, r.client_id
    pair, kind = r.pair, r.api_kind
    place = w.pair_use[pair, kind]
    if place >= 0:
        e = w.usage.rows[place]
        if (
            e.topic != topic
            or e.window != window
            or e.api != api
            or e.principal != who
            or e.client != client
        ):
            place = NOBODY
    if place < 0:
        place = at(w.usage, (key, window, api, who, client, topic))
    w.usage.rows[place].feed, w.usage.rows[place].last_ms = r.source_feed, r.ts_wall_ms
    w.pair_use[pair, kind] = place
    return place


@inlined
def count_use(w: World, r: Record, throttle_ms: Int) -> Int:
    """Add a request to the use of its topics; returns the largest one. What is charged beyond the
    bytes of topics, and all else, belongs to that one."""
    window = window_of(w, r.ts_wall_ms)
    most, sum_, largest = NOBODY, _ZERO, NOBODY
    for j in range(r.topics_begin, r.topics_end):
        place = _use(w, r, window, w.topic[j])
        w.usage.rows[place].bytes += w.topic_bytes[j]
        sum_ += w.topic_bytes[j]
        if w.topic_bytes[j] > most:
            largest, most = place, w.topic_bytes[j]
    if largest < 0:
        largest = _use(w, r, window, _NO_NAME)
    u = w.usage.rows[largest]
    u.requests += 1
    u.throttle_ms += throttle_ms
    if r.charged_bytes != NULL:
        u.bytes += max(r.charged_bytes - sum_, _ZERO)
    if r.handler_time_ns != NULL:
        u.handler_ns += r.handler_time_ns
    return u.topic


@inlined
def add_stats(w: World, r: Record, type_: Int, value: float, rate: float) -> Int:
    """Add a charge to the open window of its entity; its place."""
    pair, window = r.pair, window_of(w, r.ts_wall_ms)
    place = w.pair_stats[pair, type_]
    if place < 0 or w.stats.rows[place].window != window:
        user, client = w.pair_tags[pair, type_, 0], w.pair_tags[pair, type_, 1]
        place = at(w.stats, (r.key, window, type_, user, client, L.OF_REQUESTS))
        w.pair_stats[pair, type_] = place
    e = w.stats.rows[place]
    e.requests += 1
    e.charged += value
    if not e.rate_max >= rate:
        e.rate_max = rate
    e.bound, e.level = w.pair_bound[pair, type_], w.pair_level[pair, type_]
    e.feed, e.last_ms = r.source_feed, r.ts_wall_ms
    return place
