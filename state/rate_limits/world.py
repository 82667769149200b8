"""Arrays of one broker: finding and adding entities, growing, dropping, renumbering."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numba
import numpy as np

from state.engine.structs import grown, joined, repeated
from state.rate_limits import layout as L
from state.rate_limits.layout import NEVER, Array, Feed, Out, World
from state.rate_limits.limiter import idle_and_full
from state.rate_limits.outputs import COMMAND, EVENT, VERDICT

_HASH = np.uint64(0x9E3779B97F4A7C15)
LAYOUTS: Mapping[str, np.dtype] = {
    "key": L.KEY,
    "buckets": L.BUCKET,
    "limiters": L.LIMITER,
    "topics": L.TOPIC_STATE,
    "cnxs": L.CNX,
    "producers": L.PRODUCER,
    "links": L.LINK,
    "waiting": L.WAITING,
    "flights": L.FLIGHT,
    "timers": L.TIMER,
    "threads": L.THREAD,
    "touched": np.dtype("<i8"),
    "scratch": np.dtype("<i8"),
}


def blank(name: str, count: int) -> Array:
    """New elements of one array, empty as the kernel expects them."""
    return repeated(_empty(name), count)


@lru_cache
def _empty(name: str) -> Array:
    array = np.zeros(1, LAYOUTS[name])
    if name == "buckets":
        array["last_ns"] = NEVER
    elif name == "limiters":
        array["head"] = array["tail"] = -1
        array["used_ns"] = NEVER
        array["stamp"] = -1
    elif name == "topics":
        array["limiter"] = array["group"] = array["flight_head"] = array["flight_tail"] = -1
        array["used_ns"] = NEVER
    elif name == "cnxs":
        array["thread"] = array["first_link"] = array["snapshot"] = -1
        array["mark_producer"] = array["mark_topic"] = array["mark_thread"] = -1
        array["flag_request"] = array["flag_mark"] = array["look"] = L.NULL
        array["first_mark"] = array["last_mark"] = -1
        array["seen_paused_ns"] = array["seen_resumed_ns"] = NEVER
    elif name == "producers":
        array["name"] = array["next"] = array["kept_type"] = -1
        array["heard_ms"] = array["kept_end_ms"] = NEVER
    elif name == "links":
        array["next"] = array["first_producer"] = array["charged_by"] = -1
    elif name == "key":
        array["row_ns"] = array["verdict_ns"] = array["command_ns"] = NEVER
        array["latest_ns"] = NEVER
        array["last_wall_ms"] = array["clock_wall_ms"] = array["run_wall_ms"] = L.NULL
        array["latest_wall_ms"] = array["plan_ms"] = array["apart_ms"] = L.NULL
        array["free_waiting"] = array["free_flight"] = -1
        array["last_feed"] = -1
    return array


def extend(world: World, **more: int) -> World:
    """The world with more elements at the end of some arrays."""
    return world._replace(
        **{
            name: joined([getattr(world, name), blank(name, count)])
            for name, count in more.items()
            if count
        }
    )


def grow(world: World, out: Out) -> tuple[World, Out]:
    """Make room for at least one more step: arrays that are short get twice what the step needs."""
    k = world.key[0]
    waiting, cnxs, limiters = int(k["waiting"]), len(world.cnxs), len(world.limiters)
    step = limiters + cnxs + 64
    need = {
        "waiting": int(k["waiting_used"]) + 64,
        "flights": int(k["flight_used"]) + 64,
        "timers": int(k["timers"]) + step,
        "scratch": 2 * cnxs + 3 * len(world.producers) + 64,
    }
    # new elements of these are zeros
    longer = {
        name: grown(getattr(world, name), 2 * count)
        for name, count in need.items()
        if count > len(getattr(world, name))
    }
    world = world._replace(**longer)
    need = {
        "rows": int(k["rows"]) + waiting + 3 * cnxs + step,
        "verdicts": int(k["verdict_rows"]) + 64,
        "snapshots": int(k["snapshots"]) + cnxs + 64,
        "snapshot_topics": int(k["snapshot_topics"]) + len(world.links) + 64,
        "commands": int(k["command_rows"]) + 3 * len(world.producers) + 64,
    }
    if not k["protocol"]:
        del need["commands"]
    room = {
        name: grown(getattr(out, name), 2 * count)
        for name, count in need.items()
        if count > len(getattr(out, name))
    }
    return world, out._replace(**room)


NO_OUT = Out(
    np.zeros(0, EVENT),
    np.zeros(0, VERDICT),
    np.zeros(0, np.int64),
    np.zeros(0, np.int64),
    np.zeros(0, COMMAND),
)
"""No rows, and no room for any."""


@numba.njit(cache=True, nogil=True)
def _slot(a: int, b: int, c: int, slots: np.uint64) -> np.uint64:
    h = (np.uint64(a) * _HASH) ^ np.uint64(b)
    h = (h * _HASH) ^ np.uint64(c)
    h *= _HASH
    return (h ^ (h >> np.uint64(29))) & slots


@numba.njit(cache=True, nogil=True)
def find_producers(
    producers: Array,
    known: int,
    links: Array,
    known_links: int,
    cnx: Array,
    topic: Array,
    producer_id: Array,
    create: Array,
) -> tuple[int, int, Array]:
    """How many of `producers` and `links` are used, which have room for one new element per row;
    and the position of (connection, topic, producer id) per row, -1 if unknown and not created.
    """
    found = np.empty(len(cnx), np.int64)
    size = 64
    while size < 2 * (known + len(cnx)):
        size *= 2
    slots = np.uint64(size - 1)
    table = np.full(size, -1, np.int64)
    for i in range(known):
        p = producers[i]
        at = _slot(p["cnx"], p["topic"], p["producer_id"], slots)
        while table[at] >= 0:
            at = (at + np.uint64(1)) & slots
        table[at] = i
    link_table = np.full(size, -1, np.int64)
    for i in range(known_links):
        at = _slot(links[i]["cnx"], links[i]["topic"], 0, slots)
        while link_table[at] >= 0:
            at = (at + np.uint64(1)) & slots
        link_table[at] = i
    for i in range(len(cnx)):
        found[i] = -1
        if cnx[i] < 0 or topic[i] < 0:
            continue
        at = _slot(cnx[i], topic[i], producer_id[i], slots)
        while table[at] >= 0:
            p = producers[table[at]]
            if p["cnx"] == cnx[i] and p["topic"] == topic[i] and p["producer_id"] == producer_id[i]:
                break
            at = (at + np.uint64(1)) & slots
        if table[at] < 0 and create[i]:
            table[at] = known
            new = producers[known]
            new["cnx"], new["topic"], new["producer_id"] = cnx[i], topic[i], producer_id[i]
            link_at = _slot(cnx[i], topic[i], 0, slots)
            while link_table[link_at] >= 0:
                e = links[link_table[link_at]]
                if e["cnx"] == cnx[i] and e["topic"] == topic[i]:
                    break
                link_at = (link_at + np.uint64(1)) & slots
            if link_table[link_at] < 0:
                link_table[link_at] = known_links
                links[known_links]["cnx"], links[known_links]["topic"] = cnx[i], topic[i]
                known_links += 1
            new["link"] = link_table[link_at]
            known += 1
        found[i] = table[at]
    return known, known_links, found


@numba.njit(cache=True, nogil=True)
def droppable_limiters(w: World, clock: int) -> Array:
    """Limiters that are equivalent to new ones at `clock`: idle, full, nobody waiting, no task."""
    drop = np.zeros(len(w.limiters), np.bool_)
    for i in range(1, len(w.limiters)):
        e = w.limiters[i]
        drop[i] = (
            e["waiting"] == 0
            and e["charged"] == 0
            and e["most_waiting"] == 0
            and idle_and_full(w, i, clock)
        )
        drop[i] = drop[i] and e["tasks"] == 0
    return drop


@numba.njit(cache=True, nogil=True)
def line_up_waiting(w: World, limiter: Array, place: Array) -> int:
    """Places of all FIFOs, limiter by limiter, head first."""
    n = 0
    for i in range(len(w.limiters)):
        at = w.limiters[i]["head"] if w.limiters[i]["waiting"] > 0 else -1
        while at >= 0:
            limiter[n], place[n] = i, at
            n += 1
            at = w.waiting[at]["next"]
    return n


@numba.njit(cache=True, nogil=True)
def line_up_flights(w: World, topic: Array, place: Array) -> int:
    """Runs of requests in flight, topic by topic, oldest first."""
    n = 0
    for t in range(len(w.topics)):
        at = w.topics[t]["flight_head"]
        while at >= 0:
            topic[n], place[n] = t, at
            n += 1
            at = w.flights[at]["next"]
    return n


def empty_feed() -> Feed:
    """No records."""
    none = np.zeros(0, np.int64)
    return Feed(*[none] * len(Feed._fields))
