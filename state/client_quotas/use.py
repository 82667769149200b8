"""What clients did in the open windows: charges of entities, and use by client, api and topic."""

from __future__ import annotations

import numpy as np

from state.client_quotas import layout as L
from state.client_quotas.layout import NOBODY, NULL, Feed, Int, World, inlined
from state.engine.names import NONE
from state.engine.tables import at

_NO_NAME = np.int64(NONE)
_ZERO = np.int64(0)


@inlined
def window_of(w: World, at_ms: Int) -> Int:
    """The start of the window that a time lies in."""
    return at_ms // w.settings[0]["period_ms"] * w.settings[0]["period_ms"]


@inlined
def _use(w: World, f: Feed, i: Int, window: Int, topic: Int) -> Int:
    """The use of a topic by the client of a request in the open window; mostly that of the request
    of its kind before."""
    key, api, who, client = f.key[i], f.api[i], f.principal[i], f.client_id[i]
    pair, kind = f.pair[i], f.api_kind[i]
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
    w.usage.rows[place].feed, w.usage.rows[place].last_ms = f.feed[i], f.at_ms[i]
    w.pair_use[pair, kind] = place
    return place


@inlined
def count_use(w: World, f: Feed, i: Int, throttle_ms: Int) -> Int:
    """Add a request to the use of its topics; returns the largest one. What is charged beyond the
    bytes of topics, and all else, belongs to that one."""
    window = window_of(w, f.at_ms[i])
    most, sum_, largest = NOBODY, _ZERO, NOBODY
    for j in range(f.topic_start[i], f.topic_start[i + 1]):
        place = _use(w, f, i, window, f.topic[j])
        w.usage.rows[place].bytes += f.topic_bytes[j]
        sum_ += f.topic_bytes[j]
        if f.topic_bytes[j] > most:
            largest, most = place, f.topic_bytes[j]
    if largest < 0:
        largest = _use(w, f, i, window, _NO_NAME)
    u = w.usage.rows[largest]
    u.requests += 1
    u.throttle_ms += throttle_ms
    if f.bytes[i] != NULL:
        u.bytes += max(f.bytes[i] - sum_, _ZERO)
    if f.handler_ns[i] != NULL:
        u.handler_ns += f.handler_ns[i]
    return u.topic


@inlined
def add_stats(w: World, f: Feed, i: Int, type_: Int, value: float, rate: float) -> Int:
    """Add a charge to the open window of its entity; its place."""
    pair, window = f.pair[i], window_of(w, f.at_ms[i])
    place = w.pair_stats[pair, type_]
    if place < 0 or w.stats.rows[place].window != window:
        user, client = w.pair_tags[pair, type_, 0], w.pair_tags[pair, type_, 1]
        place = at(w.stats, (f.key[i], window, type_, user, client, L.OF_REQUESTS))
        w.pair_stats[pair, type_] = place
    e = w.stats.rows[place]
    e.requests += 1
    e.charged += value
    if not e.rate_max >= rate:
        e.rate_max = rate
    e.bound, e.level = w.pair_bound[pair, type_], w.pair_level[pair, type_]
    e.feed, e.last_ms = f.feed[i], f.at_ms[i]
    return place
