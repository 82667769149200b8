"""Arrays of one broker: finding and adding entities, growing, dropping, renumbering."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numba
import numpy as np

from state.engine.clocks import NEVER_SET
from state.engine.structs import grown, joined, repeated
from state.engine.tables import Indexed, at, find, more_children, with_room
from state.rate_limits import layout as L
from state.rate_limits.layout import NEVER, NOBODY, Array, Out, World, compiled
from state.rate_limits.limiter import idle_and_full
from state.rate_limits.outputs import COMMAND, EVENT, VERDICT

ROWS = {
    "limiters": L.LimiterState,
    "topics": L.TopicState,
    "cnxs": L.ConnectionState,
    "producers": L.ProducerState,
    "links": L.LinkState,
    "waiting": L.WaitingState,
    "flights": L.FlightState,
    "threads": L.ThreadState,
}


def _new(layout: np.dtype, *never: str, **values: int) -> Array:
    """One new element; `never` are fields that are NEVER, which is NULL."""
    found = np.zeros(1, layout)
    for name, value in (dict.fromkeys(never, NEVER) | values).items():
        found[name] = value
    return found


_BLANK: Mapping[str, Array] = {
    "key": _new(
        L.KEY,
        *(*NEVER_SET, "row_ns", "verdict_ns", "command_ns", "last_wall_ms"),
        last_feed=-1,
    ),
    "buckets": _new(L.BUCKET, "last_ns"),
    **{name: row.blank for name, row in ROWS.items()},
    "timers": _new(L.TIMER),
    "touched": np.zeros(1, np.int64),
    "scratch": np.zeros(1, np.int64),
}
LAYOUTS: Mapping[str, np.dtype] = {name: array.dtype for name, array in _BLANK.items()}


def blank(name: str, count: int) -> Array:
    """New elements of one array, empty as the kernel expects them."""
    return repeated(_BLANK[name], count)


def extend(world: World, **more: int) -> World:
    """The world with more elements at the end of some arrays."""
    longer: dict[str, Any] = {
        name: joined([getattr(world, name), blank(name, count)])
        for name, count in more.items()
        if count
    }
    return _linked(world._replace(**longer))


def _linked(w: World) -> World:
    """The world with room in its lists for all that it has."""
    waiting, flights = len(w.waiting.rows), len(w.flights.rows)
    return w._replace(
        fifos=more_children(w.fifos, len(w.limiters), waiting),
        marks=more_children(w.marks, len(w.cnxs), waiting),
        runs=more_children(w.runs, len(w.topics), flights),
    )


def grow(world: World, out: Out) -> tuple[World, Out]:
    """Make room for at least one more step: arrays that are short get twice what the step needs."""
    k = world.key[0]
    waiting = int(world.waiting.used[0] - world.waiting.used[1])
    cnxs, limiters = len(world.cnxs), len(world.limiters)
    step = limiters + cnxs + 64
    need = {
        "timers": int(k["timers"]) + step,
        "scratch": 2 * cnxs + 3 * len(world.producers) + 64,
    }
    # new elements of these are zeros
    longer: dict[str, Any] = {
        name: grown(getattr(world, name), 2 * count)
        for name, count in need.items()
        if count > len(getattr(world, name))
    }
    world = _linked(
        world._replace(
            waiting=with_room(L.WaitingState, world.waiting, 64),
            flights=with_room(L.FlightState, world.flights, 64),
            **longer,
        )
    )
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


@compiled
def find_producers(
    producers: Indexed,
    links: Indexed,
    cnx: Array,
    topic: Array,
    producer_id: Array,
    create: Array,
    found: Array,
) -> None:
    """The place of the producer of each row, NOBODY if it is unknown and not to be created. The
    tables have room for one more per row."""
    for i in range(len(cnx)):
        found[i] = NOBODY
        if cnx[i] >= 0 and topic[i] >= 0:
            key = (cnx[i], topic[i], producer_id[i])
            place = find(producers, key)
            if place < 0 and create[i]:
                place = at(producers, key)
                producers.rows[place].link = at(links, (cnx[i], topic[i]))
            found[i] = place


@numba.njit(cache=True, nogil=True)
def droppable_limiters(w: World, clock: int) -> Array:
    """Limiters that are equivalent to new ones at `clock`: idle, full, nobody waiting, no task."""
    drop = np.zeros(len(w.limiters), np.bool_)
    for i in range(1, len(w.limiters)):
        e = w.limiters[i]
        drop[i] = (
            e.waiting == 0 and e.charged == 0 and e.most_waiting == 0 and idle_and_full(w, i, clock)
        )
        drop[i] = drop[i] and e.tasks == 0
    return drop
