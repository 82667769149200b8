"""State of one shard of `client_quotas`: brokers, sensors, open windows and policies; as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numba
import numpy as np

from state.client_quotas import flow
from state.client_quotas import layout as L
from state.client_quotas.declaration import COLUMNS, NAME, STATE_VERSION
from state.client_quotas.layout import (
    NULL,
    Array,
    OpenStats,
    OpenUsage,
    QuotaEntity,
    QuotaSensor,
    World,
)
from state.client_quotas.sensors import hold
from state.client_quotas.shared import MEANING
from state.engine import structs, wall
from state.engine.codec import DENSE
from state.engine.kernel import Int
from state.engine.names import Names
from state.engine.records import Records
from state.engine.resting import Pages, Resting
from state.engine.store import Plain, RecordSet, Store, Struct, Texts
from state.engine.tables import Indexed, in_use, table, with_room
from state.engine.wall_job import SharedShard
from udfs.users import user_of

SAMPLES = ("sample_start", "sample_last", "sample_total")
_ENTITIES = (
    QuotaSensor.part("sensors"),
    OpenStats.part("stats"),
    OpenUsage.part("usage"),
    Plain(SAMPLES[0]),
    Plain(SAMPLES[1]),
    Plain(SAMPLES[2], np.float64),
)
PAGE = Store(f"{NAME}.resting", STATE_VERSION, *_ENTITIES)
KEPT = Store(
    NAME,
    STATE_VERSION,
    Texts("config"),
    Struct("meaning", MEANING, ("name", "user", "client")),
    L.QuotaBroker.part("keys"),
    *_ENTITIES,
    RecordSet("waiting", COLUMNS),
    RecordSet("shared", COLUMNS),
    Pages("resting", ("broker", "window", "recorded_ms")),
    added=("resting",),
)
_PARTS = ("keys", "sensors", "stats", "usage", *SAMPLES)
LONG_AGO = np.int64(-(2**61))
"""Time of samples that are not stored: they have expired."""


@dataclass
class Shard(SharedShard):
    """What one shard knows between two calls. Samples are in the order of their sensors."""

    resting: Resting
    """Entities of which nothing is read. Of each page: its broker (a position in `keys`), the first
    window that is open in it and the last charge (ms; NULL: none)."""


def read(data: bytes | None) -> Shard:
    """The shard behind its bytes, or a new one."""
    found, names = KEPT.opened(data)
    return Shard(
        names,
        {name: found[name] for name in _PARTS},
        found["waiting"],
        found["shared"],
        found["meaning"],
        found["config"],
        found["resting"],
    )


def write(shard: Shard) -> bytes:
    """The bytes of a shard."""
    return KEPT.write(
        {
            **shard.parts,
            "config": shard.config or (),
            "meaning": shard.meaning,
            "waiting": shard.waiting,
            "shared": shard.shared,
            "resting": shard.resting,
        },
        shard.names,
    )


def read_page(data: bytes, into: Names) -> dict[str, Array]:
    """Entities that rested, with their names in `into`."""
    found: dict[str, Array] = PAGE.read(data, into)[0]
    return found


def write_page(parts: Mapping[str, Array], names: Names) -> bytes:
    """The bytes of entities that are to rest."""
    return PAGE.write(parts, names, DENSE)


# -- between state and kernel ----------------------------------------------------------------


class LimitArrays(NamedTuple):
    """Shared records as the kernel takes them; see `layout.World`."""

    documents: Array
    cluster: Array
    broker: Array
    shared_ms: Array
    entity: Array
    entities: Indexed


def limits_of(records: Records, meaning: Array, empty: int) -> LimitArrays:
    """The documents of a shard, and the entities that they are about."""
    rows = np.flatnonzero(meaning["what"] > 0)
    kind = meaning["what"][rows] - 1
    user, client = (
        np.where(kind == without, empty, meaning[name][rows])
        for name, without in (("user", L.OF_CLIENT), ("client", L.OF_USER))
    )
    known, entity = np.zeros((len(rows), 3), np.int64), np.full(len(meaning), -1, np.int64)
    which = np.empty(len(rows), np.int64)
    count = wall.intern_tuples(known, 0, kind, user, client, np.ones(len(rows), bool), which)
    entity[rows] = which
    entities = np.ascontiguousarray(known[:count]).view(QuotaEntity.dtype).reshape(count)
    cluster, broker, at_ms = (
        np.ascontiguousarray(records[name]) for name in ("cluster", "broker", "ts_wall_ms")
    )
    return LimitArrays(
        np.ascontiguousarray(meaning), cluster, broker, at_ms, entity, table(QuotaEntity, entities)
    )


def unpack(
    parts: Mapping[str, Array], settings: Mapping[str, Any], pairs: Array, limits: LimitArrays
) -> World:
    """The world behind stored arrays."""
    p = np.zeros(1, L.SETTINGS)
    for name, value in settings.items():
        p[name] = value
    p["row_key"], p["row_ms"] = -1, NULL
    keys, entities = len(parts["keys"]), int(limits.entities.used[0])
    none = np.full((keys, entities, L.TYPES), np.nan)
    by_type = (len(pairs), L.TYPES)
    empty = np.zeros(0, np.int64)
    w = World(
        settings=p,
        keys=parts["keys"],
        links=np.zeros(keys, L.LINK),
        sensors=table(QuotaSensor, parts["sensors"]),
        stats=table(OpenStats, parts["stats"]),
        usage=table(OpenUsage, parts["usage"]),
        sample_start=empty,
        sample_last=empty,
        sample_total=np.zeros(0),
        **limits._asdict(),
        from_stream=np.zeros((keys, entities), np.uint8),
        stream=none,
        configured=none.copy(),
        topic=empty,
        topic_bytes=empty,
        pair_names=pairs,
        pair_version=np.full(len(pairs), -1, np.int64),
        pair_tags=np.zeros((*by_type, 2), np.int64),
        pair_bound=np.zeros(by_type),
        pair_level=np.zeros(by_type, np.int64),
        pair_sensor=np.zeros(by_type, np.int64),
        pair_stats=np.zeros(by_type, np.int64),
        pair_use=np.full((len(pairs), L.API_COUNT), L.NOBODY),
    )
    w = w._replace(**_sample_room(w, w.sensors))
    _spread(
        in_use(w.sensors),
        int(p[0]["stride"]),
        *(parts[name] for name in SAMPLES),
        *(getattr(w, name) for name in SAMPLES),
    )
    return w


def more_room(w: World, topics: int = 0) -> World:
    """The world with room for more sensors, windows and uses where these are short; `topics` is how
    many uses the next record may add."""
    sensors = with_room(QuotaSensor, w.sensors, int(flow.NEW))
    return w._replace(
        sensors=sensors,
        stats=with_room(OpenStats, w.stats, int(flow.NEW)),
        usage=with_room(OpenUsage, w.usage, topics + 1),
        **_sample_room(w, sensors),
    )


def _sample_room(w: World, sensors: Indexed) -> dict[str, Any]:
    """The samples with room for those of so many sensors."""
    room = len(sensors.rows) * int(w.settings[0]["stride"])
    return {name: structs.grown(getattr(w, name), room) for name in SAMPLES}


@numba.njit(cache=True, nogil=True)
def _spread(
    sensors: Array,
    stride: Int,
    start: Array,
    last: Array,
    total: Array,
    starts: Array,
    lasts: Array,
    totals: Array,
) -> None:
    at = 0
    for s in range(len(sensors)):
        e = sensors[s]
        e["used"] = min(e["used"], stride)
        e["current"] = min(e["current"], stride - 1)
        for j in range(e["used"]):
            to = s * stride + j
            if j < e["held"]:
                starts[to], lasts[to], totals[to] = start[at + j], last[at + j], total[at + j]
            else:
                starts[to], lasts[to], totals[to] = LONG_AGO, LONG_AGO, 0.0
        at += e["held"]


def pack(w: World) -> dict[str, Array]:
    """The arrays to store, without sensors that are equivalent to new ones; inverse of `unpack`."""
    p, keys = w.settings[0], w.keys
    hold(w)
    sensors = in_use(w.sensors)
    recorded, since = sensors["recorded_ms"], clocks(keys)[sensors["key"]]
    idle = (since != NULL) & (since - recorded > p["idle_ms"])
    kept = np.flatnonzero((recorded != NULL) & ~idle)
    rows = blocks(np.arange(len(sensors)) * p["stride"], sensors["held"], kept)
    return {
        "keys": keys,
        "sensors": structs.picked(sensors, kept),
        "stats": in_use(w.stats),
        "usage": in_use(w.usage),
        **{name: getattr(w, name)[rows] for name in SAMPLES},
    }


def clocks(keys: Array) -> Array:
    """The clock of each broker; NULL without one."""
    return np.where(keys["has_clock"] != 0, keys["clock_ms"], NULL)


def blocks(first: Array, count: Array, chosen: Array) -> Array:
    """Places of the chosen ones of some blocks, one after the other."""
    count = count[chosen]
    return np.repeat(first[chosen] - (np.cumsum(count) - count), count) + np.arange(count.sum())


def window_end(window: Array, period_ms: int) -> Array:
    """When windows end. One that another period began ends where one of this period does."""
    found: Array = (window // period_ms + 1) * period_ms
    return found


def users_of(names: Names, principal: Array) -> Array:
    """Names of users by those of principals."""
    distinct = np.flatnonzero(np.bincount(principal, minlength=1))
    users = np.zeros(len(names), np.int64)
    users[distinct] = names.intern(user_of(names.lookup(distinct)))
    found: Array = users[principal]
    return found
