"""One broker's world as stored between calls: only what can still matter, and lists as orders."""

from __future__ import annotations

import numba
import numpy as np

from state.engine.structs import grown, picked
from state.engine.tables import children, in_order, table
from state.rate_limits import layout as L
from state.rate_limits.layout import NEVER, Array, World
from state.rate_limits.world import (
    LAYOUTS,
    ROWS,
    blank,
    droppable_limiters,
)

PARTS = tuple(name for name in LAYOUTS if name not in ("touched", "scratch"))
NAME_FIELDS = {
    "key": ("cluster", "broker", "last_feed"),
    **{name: tuple(f for f, of in row.fields.items() if of.is_name) for name, row in ROWS.items()},
}
"""Fields that hold integers of the shard's names."""


def pack(w: World) -> dict[str, Array]:
    """The arrays to store, without closed entities and those that are idle and equivalent to new
    ones.
    """
    timers = _live_timers(w)
    timers = picked(timers, np.lexsort((timers["order"], timers["due_ns"])))
    fifos, runs = (
        in_order(w.fifos, np.arange(len(w.limiters))),
        in_order(w.runs, np.arange(len(w.topics))),
    )
    return dict(zip(PARTS, _packed(w, timers, fifos, runs), strict=True))


def _live_timers(w: World) -> Array:
    """Release tasks, waits for receipts whose mark is still there and undecided, and looks at
    connections that are still open."""
    timers = w.timers[: int(w.key[0]["timers"])]
    if not (timers["kind"] != L.RELEASE_TASK).any():
        return timers
    receipt, looks = timers["kind"] == L.RECEIPT_WAIT, timers["kind"] == L.LOOK
    place, cnx = timers["place"], timers["cnx"]
    fifo = receipt & (place >= 0)
    flag = receipt & (place < 0)
    live = ~receipt
    live[looks] = w.cnxs["look"][cnx[looks]] == timers["mark"][looks]
    e = w.waiting.rows[place[fifo]]
    live[fifo] = (e["order"] == timers["mark"][fifo]) & (e["receipt"] == L.WAITING_FOR)
    kind = L.flag_at(place[flag])
    c = w.cnxs[cnx[flag]]
    row = np.arange(len(c))
    live[flag] = (c["flag_mark"][row, kind] == timers["mark"][flag]) & (
        c["flag_receipt"][row, kind] == L.WAITING_FOR
    )
    return picked(timers, live)


@numba.njit(cache=True, nogil=True)
def _packed(w: World, live: Array, places: Array, runs: Array) -> tuple[Array, ...]:
    """The arrays of PARTS, their entities numbered anew; `live` are the timers to store, `places`
    those in FIFOs and `runs` the requests in flight, in their order."""
    kept_limiters, kept_topics, kept_cnxs, kept_producers, kept_links = _kept(w, places, runs)
    limiter_of, topic_of, cnx_of = (
        _numbers(kept_limiters),
        _numbers(kept_topics),
        _numbers(kept_cnxs),
    )
    producer_of, link_of = _numbers(kept_producers), _numbers(kept_links)
    key, timers = w.key.copy(), live.copy()
    k = key[0]
    k["rows"], k["verdict_rows"], k["command_rows"] = 0, 0, 0
    k["snapshots"], k["snapshot_topics"], k["flight_no"] = 0, 0, len(runs)
    limiters = _where(w.limiters, kept_limiters)
    buckets = _where(w.buckets, np.repeat(kept_limiters, 2))
    topics = _where(w.topics, kept_topics)
    for i in range(len(topics)):
        e = topics[i]
        e.limiter, e.group = limiter_of[e.limiter], limiter_of[e.group]
    cnxs = _where(w.cnxs, kept_cnxs)
    for i in range(len(cnxs)):
        c = cnxs[i]
        for j in range(L.CAUSES):
            c.mark_producer[j] = producer_of[c.mark_producer[j]]
            c.mark_topic[j] = topic_of[c.mark_topic[j]]
        c.first_link, c.snapshot = -1, -1
    producers = _where(w.producers, kept_producers)
    for i in range(len(producers)):
        p = producers[i]
        p.cnx, p.topic = cnx_of[p.cnx], topic_of[p.topic]
        p.link, p.next = link_of[p.link], -1
    links = _where(w.links, kept_links)
    for i in range(len(links)):
        x = links[i]
        x.cnx, x.topic = cnx_of[x.cnx], topic_of[x.topic]
        x.charged_by = producer_of[x.charged_by]
        x.next, x.first_producer = -1, -1
    place_of = np.full(len(w.waiting.rows) + 1, -1)
    waiting = np.empty(len(places), w.waiting.rows.dtype)
    for i in range(len(places)):
        place_of[places[i]] = i
        waiting[i] = w.waiting.rows[places[i]]
        x = waiting[i]
        x.producer, x.trigger = producer_of[x.producer], topic_of[x.trigger]
        x.limiter = limiter_of[x.limiter]
    flights = np.empty(len(runs), w.flights.rows.dtype)
    for i in range(len(runs)):
        flights[i] = w.flights.rows[runs[i]]
        y = flights[i]
        y.number, y.topic, y.cnx = i, topic_of[y.topic], cnx_of[y.cnx]
    for i in range(len(timers)):
        t = timers[i]
        t["limiter"], t["cnx"] = limiter_of[t["limiter"]], cnx_of[t["cnx"]]
        if t["place"] >= 0:
            t["place"] = place_of[t["place"]]
    return (
        key,
        buckets,
        limiters,
        topics,
        cnxs,
        producers,
        links,
        waiting,
        flights,
        w.threads,
        timers,
    )


@numba.njit(cache=True, nogil=True)
def _kept(w: World, places: Array, runs: Array) -> tuple[Array, ...]:
    """Which limiters, topics, connections, producers and links are stored (bool). `places` are
    those in FIFOs, `runs` the requests in flight."""
    k = w.key[0]
    clock = k["clock_ns"] if k["has_clock"] != 0 else NEVER
    limiters = ~droppable_limiters(w, clock)
    topics = np.zeros(len(w.topics), np.bool_)
    cnxs = np.zeros(len(w.cnxs), np.bool_)
    producers = np.zeros(len(w.producers), np.bool_)
    links = np.zeros(len(w.links), np.bool_)
    for i in range(len(w.producers)):
        producers[i] = w.producers[i].open != 0 or w.producers[i].queued > 0
    for i in range(len(w.cnxs)):
        c = w.cnxs[i]
        counted = c.most_in_flight > 0 or c.throttles > 0 or c.observed_pauses > 0
        cnxs[i] = c.open != 0 or counted
        if cnxs[i]:
            for j in range(L.CAUSES):
                if c.mark_producer[j] >= 0:
                    producers[c.mark_producer[j]] = True
                if c.mark_topic[j] >= 0:
                    topics[c.mark_topic[j]] = True
    for i in range(len(w.links)):
        x = w.links[i]
        if x.attached != 0:
            c = w.cnxs[x.cnx]
            paused = x.culprit != 0 and c.paused != 0
            links[i] = x.producers > 0 or c.in_flight > 0 or paused
        if links[i] and x.charged_by >= 0:
            producers[x.charged_by] = True
    for i in range(len(w.producers)):
        if producers[i]:
            links[w.producers[i].link] = True
            topics[w.producers[i].topic] = True
    for i in range(len(w.links)):
        if links[i]:
            topics[w.links[i].topic] = True
    for i in range(len(places)):
        topics[w.waiting.rows[places[i]].trigger] = True
    for i in range(len(runs)):
        topics[w.flights.rows[runs[i]].topic] = True
    for i in range(len(w.topics)):
        e = w.topics[i]
        used = e.used_ns != NEVER and clock - e.used_ns < k["idle_ns"]
        limited = e.limiter >= 0 and limiters[e.limiter]
        topics[i] = topics[i] or e.touched != 0 or used or limited
    return limiters, topics, cnxs, producers, links


@numba.njit(cache=True, nogil=True)
def _numbers(keep: Array) -> Array:
    """New position by old one; what is dropped, and -1, become -1."""
    number = np.full(len(keep) + 1, -1)
    count = 0
    for i in range(len(keep)):
        if keep[i]:
            number[i] = count
            count += 1
    return number


@numba.njit(cache=True, nogil=True)
def _where(array: Array, keep: Array) -> Array:
    """A copy of the elements under a mask."""
    found = np.empty(np.count_nonzero(keep), array.dtype)
    count = 0
    for i in range(len(keep)):
        if keep[i]:
            found[count] = array[i]
            count += 1
    return found


def unpack(parts: dict[str, Array]) -> World:
    """The world behind stored arrays, its lists linked again."""
    k, waiting, flights = parts["key"][0], parts["waiting"], parts["flights"]
    used = np.flatnonzero(parts["topics"]["touched"])
    k["touched"], k["timers"] = len(used), len(parts["timers"])
    marked = np.argsort(waiting["order"])
    cnx = parts["producers"]["cnx"][waiting["producer"][marked]]
    waits, flying = table(L.WaitingState, waiting), table(L.FlightState, flights)
    topics, cnxs, limiters = (len(parts[name]) for name in ("topics", "cnxs", "limiters"))
    room = len(waits.rows)
    world = World(
        **{name: parts[name] for name in PARTS if name not in ("waiting", "flights")},
        waiting=waits,
        fifos=children(waiting["limiter"], np.arange(len(waiting)), limiters, room),
        marks=children(cnx, marked, cnxs, room),
        flights=flying,
        runs=children(flights["topic"], np.arange(len(flights)), topics, len(flying.rows)),
        touched=grown(used, topics),
        scratch=blank("scratch", 0),
    )
    _link(world)
    return world


@numba.njit(cache=True, nogil=True)
def _link(w: World) -> None:
    for i in range(len(w.links)):
        if w.links[i].attached != 0:
            cnx = w.cnxs[w.links[i].cnx]
            w.links[i].next = cnx.first_link
            cnx.first_link = i
    for i in range(len(w.producers)):
        if w.producers[i].attached != 0:
            link = w.links[w.producers[i].link]
            w.producers[i].next = link.first_producer
            link.first_producer = i


def new_world(cluster: int, broker: int) -> World:
    """A new broker; limiter 0 is the broker's own."""
    key = blank("key", 1)
    k = key[0]
    k["cluster"], k["broker"] = cluster, broker
    parts = {name: blank(name, 0) for name in PARTS}
    return unpack(
        {**parts, "key": key, "limiters": _broker_limiter(), "buckets": blank("buckets", 2)}
    )


def _broker_limiter() -> Array:
    limiter = blank("limiters", 1)
    limiter["kind"], limiter["name"] = L.BROKER, -1
    return limiter
