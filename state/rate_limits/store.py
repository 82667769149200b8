"""One broker's world as stored between calls: only what can still matter, and lists as orders."""

from __future__ import annotations

import numba
import numpy as np

from state.engine.structs import copied, picked
from state.rate_limits import layout as L
from state.rate_limits.layout import NEVER, Array, World
from state.rate_limits.world import (
    LAYOUTS,
    blank,
    droppable_limiters,
    line_up_flights,
    line_up_waiting,
)

PARTS = tuple(name for name in LAYOUTS if name not in ("touched", "scratch"))
NAME_FIELDS = {
    "key": ("cluster", "broker", "last_feed"),
    "limiters": ("name",),
    "topics": ("name",),
    "cnxs": ("name",),
    "producers": ("name",),
}
"""Fields that hold integers of the shard's names."""


def pack(w: World) -> dict[str, Array]:
    """The arrays to store, without closed entities and those that are idle and equivalent to new
    ones.
    """
    k = w.key[0]
    clock = k["clock_ns"] if k["has_clock"] else NEVER
    orders = np.empty(int(k["waiting"]), np.int64)
    places = np.empty(int(k["waiting"]), np.int64)
    line_up_waiting(w, orders, places)
    waiting = picked(w.waiting, places)
    waiting["next"] = orders
    flight_topics = np.empty(int(k["flight_used"]), np.int64)
    flight_places = np.empty(int(k["flight_used"]), np.int64)
    flights_n = line_up_flights(w, flight_topics, flight_places)
    flights = picked(w.flights, flight_places[:flights_n])
    flights["next"] = flight_topics[:flights_n]

    keep = _kept(w, int(clock), waiting, flights)
    number = {name: _renumber(mask) for name, mask in keep.items()}
    packed = {name: picked(getattr(w, name), mask) for name, mask in keep.items()}
    packed["buckets"] = picked(w.buckets, np.repeat(keep["limiters"], 2))
    timers = _live_timers(w)
    packed["timers"] = picked(timers, np.lexsort((timers["order"], timers["due_ns"])))
    packed["key"], packed["threads"] = copied(w.key), w.threads
    packed["waiting"], packed["flights"] = waiting, flights
    for part, field, target in (
        ("topics", "limiter", "limiters"),
        ("topics", "group", "limiters"),
        ("producers", "cnx", "cnxs"),
        ("producers", "topic", "topics"),
        ("producers", "link", "links"),
        ("links", "cnx", "cnxs"),
        ("links", "topic", "topics"),
        ("waiting", "producer", "producers"),
        ("waiting", "trigger", "topics"),
        ("waiting", "limiter", "limiters"),
        ("links", "charged_by", "producers"),
        ("waiting", "next", "limiters"),
        ("flights", "cnx", "cnxs"),
        ("flights", "next", "topics"),
        ("timers", "limiter", "limiters"),
        ("timers", "cnx", "cnxs"),
        ("cnxs", "mark_producer", "producers"),
        ("cnxs", "mark_topic", "topics"),
    ):
        packed[part][field] = number[target][packed[part][field]]
    in_fifo = packed["timers"]["place"] >= 0
    moved = np.full(len(w.waiting) + 1, -1, np.int64)
    moved[places] = np.arange(len(places))
    packed["timers"]["place"][in_fifo] = moved[packed["timers"]["place"][in_fifo]]
    packed["cnxs"]["first_link"] = packed["cnxs"]["snapshot"] = -1
    packed["cnxs"]["first_mark"] = packed["cnxs"]["last_mark"] = -1
    packed["links"]["next"] = packed["links"]["first_producer"] = -1
    packed["producers"]["next"] = -1
    packed["topics"]["flight_head"] = packed["topics"]["flight_tail"] = -1
    key = packed["key"][0]
    for field in ("rows", "verdict_rows", "snapshots", "snapshot_topics", "command_rows"):
        key[field] = 0
    return packed


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
    e = w.waiting[place[fifo]]
    live[fifo] = (e["order"] == timers["mark"][fifo]) & (e["receipt"] == L.WAITING_FOR)
    kind = L.flag_at(place[flag])
    c = w.cnxs[cnx[flag]]
    row = np.arange(len(c))
    live[flag] = (c["flag_mark"][row, kind] == timers["mark"][flag]) & (
        c["flag_receipt"][row, kind] == L.WAITING_FOR
    )
    return picked(timers, live)


def _kept(w: World, clock: int, waiting: Array, flights: Array) -> dict[str, Array]:
    k = w.key[0]
    cnxs = (
        (w.cnxs["open"] != 0)
        | (w.cnxs["most_in_flight"] > 0)
        | (w.cnxs["throttles"] > 0)
        | (w.cnxs["observed_pauses"] > 0)
    )
    limiters = ~droppable_limiters(w, clock)
    producers = (w.producers["open"] != 0) | (w.producers["queued"] > 0)
    marked = w.cnxs["mark_producer"][cnxs]
    producers[marked[marked >= 0]] = True
    links = (w.links["attached"] != 0) & (
        (w.links["producers"] > 0)
        | (w.cnxs["in_flight"][w.links["cnx"]] > 0)
        | ((w.links["culprit"] != 0) & (w.cnxs["paused"][w.links["cnx"]] != 0))
    )
    charged = w.links["charged_by"][links]
    producers[charged[charged >= 0]] = True
    links[w.producers["link"][producers]] = True
    topics = w.topics["touched"] != 0
    used = w.topics["used_ns"]
    topics |= (used != NEVER) & (clock - used < k["idle_ns"])
    for field in ("limiter", "group"):
        has = w.topics[field] >= 0
        if field == "limiter":
            topics |= has & limiters[np.where(has, w.topics[field], 0)]
    topics[w.links["topic"][links]] = True
    topics[w.producers["topic"][producers]] = True
    topics[waiting["trigger"]] = True
    topics[flights["next"]] = True
    triggers = w.cnxs["mark_topic"][cnxs]
    topics[triggers[triggers >= 0]] = True
    return {
        "limiters": limiters,
        "topics": topics,
        "cnxs": cnxs,
        "producers": producers,
        "links": links,
    }


def _renumber(keep: Array) -> Array:
    """New position by old one; what is dropped, and -1, become -1."""
    number = np.full(len(keep) + 1, -1, np.int64)
    number[:-1][keep] = np.arange(int(keep.sum()))
    return number


def unpack(parts: dict[str, Array]) -> World:
    """The world behind stored arrays, its lists linked again."""
    k = parts["key"][0]
    waiting, flights = parts["waiting"], parts["flights"]
    world = World(
        **{name: parts[name] for name in PARTS},
        touched=np.concatenate(
            [np.flatnonzero(parts["topics"]["touched"]), blank("touched", len(parts["topics"]))]
        )[: len(parts["topics"])],
        scratch=blank("scratch", 64),
    )
    k["touched"] = int((parts["topics"]["touched"] != 0).sum())
    k["timers"], k["waiting"], k["waiting_used"] = len(parts["timers"]), len(waiting), len(waiting)
    k["flight_used"], k["free_waiting"], k["free_flight"] = len(flights), -1, -1
    _link(world)
    return world


@numba.njit(cache=True, nogil=True)
def _link(w: World) -> None:
    for place in np.argsort(w.waiting["order"]):
        cnx = w.cnxs[w.producers[w.waiting[place]["producer"]]["cnx"]]
        w.waiting[place]["before"], w.waiting[place]["after"] = cnx["last_mark"], -1
        if cnx["last_mark"] >= 0:
            w.waiting[cnx["last_mark"]]["after"] = place
        else:
            cnx["first_mark"] = place
        cnx["last_mark"] = place
    for i in range(len(w.limiters)):
        w.limiters[i]["waiting"], w.limiters[i]["head"], w.limiters[i]["tail"] = 0, -1, -1
    for i in range(len(w.waiting)):
        e = w.limiters[w.waiting[i]["next"]]
        w.waiting[i]["next"] = -1
        if e["waiting"] == 0:
            e["head"] = i
        else:
            w.waiting[e["tail"]]["next"] = i
        e["tail"] = i
        e["waiting"] += 1
    for i in range(len(w.flights)):
        topic = w.topics[w.flights[i]["next"]]
        w.flights[i]["next"] = -1
        if topic["flight_head"] < 0:
            topic["flight_head"] = i
        else:
            w.flights[topic["flight_tail"]]["next"] = i
        topic["flight_tail"] = i
    for i in range(len(w.links)):
        if w.links[i]["attached"] != 0:
            cnx = w.cnxs[w.links[i]["cnx"]]
            w.links[i]["next"] = cnx["first_link"]
            cnx["first_link"] = i
    for i in range(len(w.producers)):
        if w.producers[i]["attached"] != 0:
            link = w.links[w.producers[i]["link"]]
            w.producers[i]["next"] = link["first_producer"]
            link["first_producer"] = i


def new_world(cluster: int, broker: int) -> World:
    """A new broker; limiter 0 is the broker's own."""
    key = blank("key", 1)
    k = key[0]
    k["cluster"], k["broker"] = cluster, broker
    world = World(key=key, **{name: blank(name, 0) for name in LAYOUTS if name != "key"})
    return world._replace(
        limiters=_broker_limiter(),
        buckets=blank("buckets", 2),
        waiting=blank("waiting", 16),
        flights=blank("flights", 16),
        timers=blank("timers", 16),
    )


def _broker_limiter() -> Array:
    limiter = blank("limiters", 1)
    limiter["kind"], limiter["name"] = L.BROKER, -1
    return limiter
