"""State of one shard of `backlog`: topics with their ledgers, cursors and samples; as bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numba
import numpy as np

from state.backlog import layout as L
from state.backlog.declaration import COLUMNS, NAME, STATE_VERSION
from state.backlog.layout import NULL, Array, Store, World
from state.backlog.pool import room_for
from state.backlog.shared import MEANING, Timeline
from state.engine.codec import FAST
from state.engine.names import Names
from state.engine.owned import beside, by_count, by_field
from state.engine.records import Records, empty
from state.engine.resting import Pages, Resting
from state.engine.store import Columns, Plain, Pool, RecordSet, Struct, Texts, turn_back
from state.engine.store import Store as Kept
from state.engine.structs import grown, picked
from state.engine.wall_job import SharedShard

KEY_NAMES = ("cluster", "topic", "base", "namespace", "broker", "feed", "cached_name")
POOLS = {
    "ledgers": L.STORED_LEDGER,
    "samples": L.SAMPLE_COLUMNS,
    "producers": L.PRODUCER_COLUMNS,
    "ranges": L.RANGE_COLUMNS,
}
"""Pools that are stored, with the columns of each."""
_COUNTS = ("ledgers", "samples", "producers", "cursors")
"""What the counts of a key count, in the order of the pools."""
SEEN = ("seen_bytes", "seen_consumed")
Parts = dict[str, Array]
_TABLES = ("keys", "cursors")
KEPT = Kept(
    NAME,
    STATE_VERSION,
    Plain("checks"),
    Plain("settings"),
    Texts("config"),
    Struct("meaning", MEANING, ("name",)),
    Pages("resting", ("due_ms", "due_plan_ms")),
    Columns("keys", L.KEY, KEY_NAMES),
    Columns(
        "cursors",
        L.CURSOR,
        ("name", "state", "stated", "transaction", "client", "host", "type"),
        L.DERIVED_CURSOR,
    ),
    *(Pool(name, columns, (0,) if name == "producers" else ()) for name, columns in POOLS.items()),
    Pool("counts", L.KEY_POOLS),
    Plain("range_count"),
    *(Plain(name) for name in ("passes", *SEEN)),
    RecordSet("waiting", COLUMNS),
    RecordSet("shared", COLUMNS),
)
"""Stored parts; `passes` and the checks of cursors are flat, with as many columns as `checks`."""
_PARTS = (*_TABLES, *POOLS, "passes", *SEEN, "counts", "range_count")


def _nothing(checks: int) -> Parts:
    blank = KEPT.blank()
    return {name: blank[name] for name in _PARTS} | {
        name: np.zeros((0, checks), np.int64) for name in ("passes", *SEEN)
    }


@dataclass
class Shard(SharedShard):
    """The state of one shard between two calls.

    Cursors are in the order of their keys and, within a key, of their names; rows of pools, which
    are stored column by column, in the order of their keys or cursors.
    """

    waiting: Records = field(default_factory=lambda: empty(COLUMNS))
    shared: Records = field(default_factory=lambda: empty(COLUMNS))
    meaning: Array = field(default_factory=lambda: np.zeros(0, MEANING))
    config: tuple[str, ...] | None = None
    settings: int = 0
    """Hash of the parameters that the last call was judged by."""
    resting: Resting = field(default_factory=lambda: KEPT.blank()["resting"])
    """Topics of which nothing is read, by cluster and topic, with the first pass of each page
    (`due_ms`, NULL: never); a page is a shard without shared and waiting records."""
    due_ms: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    """When the next pass of each key is due (NULL: never); not kept."""


def new(checks: int) -> Shard:
    """A new shard, whose cursors remember some checks."""
    return Shard(Names(), _nothing(checks))


def read(data: bytes, checks: int | None = None, into: Names | None = None) -> Shard:
    """The shard from its bytes. `checks` is the number of checks that its cursors remember from now
    on; `into`: see `Store.read`.
    """
    found, names = KEPT.read(data, into)
    parts = {name: found[name] for name in _PARTS}
    if into is not None:
        _line_up_producers(parts)
    had = int(found["checks"][0])
    for name in ("passes", *SEEN):
        parts[name] = _refit(parts[name].reshape(-1, had), had if checks is None else checks)
    if checks is not None:
        parts["cursors"]["checks"] = np.minimum(parts["cursors"]["checks"], checks)
    return Shard(
        names,
        parts,
        found["waiting"],
        found["shared"],
        found["meaning"],
        found["config"],
        int(found["settings"][0]),
        found["resting"],
    )


def _line_up_producers(parts: Parts) -> None:
    """Put producers in the order of their connections' integers, which are new."""
    connections, ids = parts["producers"]
    topic = np.repeat(np.arange(len(parts["keys"])), parts["counts"][L.PRODUCERS])
    order = np.lexsort((ids, connections, topic))
    parts["producers"] = np.ascontiguousarray(parts["producers"][:, order])


def _refit(values: Array, columns: int) -> Array:
    """The last columns of values, or more of them with zeros in front."""
    had = values.shape[1]
    if had >= columns:
        return np.ascontiguousarray(values[:, had - columns :])
    return np.concatenate([np.zeros((len(values), columns - had), np.int64), values], axis=1)


def write(shard: Shard, compression: str = FAST) -> bytes:
    """The bytes of a shard."""
    parts = shard.parts
    return KEPT.write(
        {
            **parts,
            **{name: parts[name].reshape(-1) for name in ("passes", *SEEN)},
            "checks": np.array([parts["passes"].shape[1]], np.int64),
            "settings": np.array([shard.settings], np.int64),
            "config": shard.config or (),
            "meaning": shard.meaning,
            "waiting": shard.waiting,
            "shared": shard.shared,
            "resting": shard.resting,
        },
        shard.names,
        compression,
    )


def _count(pool: L.Int) -> Callable[[Shard], Array]:
    return lambda s: s.parts["counts"][pool]


OWNED = (
    beside("passes", "keys"),
    beside("counts", "keys", axis=1),
    by_field("cursors", "keys", "key"),
    by_count("ledgers", "keys", _count(L.LEDGERS), axis=1),
    by_count("samples", "keys", _count(L.SAMPLES), axis=1),
    by_count("producers", "keys", _count(L.PRODUCERS), axis=1),
    beside("range_count", "cursors"),
    *(beside(name, "cursors") for name in SEEN),
    by_count("ranges", "cursors", lambda s: s.parts["range_count"], axis=1),
)


# -- between state and kernel ----------------------------------------------------------------


def _starts(counts: Array) -> Array:
    """Spans (at, used, room) of blocks that follow one another."""
    spans = np.empty((*counts.shape, 3), np.int64)
    spans[..., 1] = spans[..., 2] = counts
    spans[..., 0] = np.cumsum(counts, axis=-1) - counts
    return spans


def _pool(stored: Array, columns: int) -> Array:
    rows = np.zeros((stored.shape[1], columns), np.int64)
    turn_back(stored, np.arange(len(stored)), rows)
    return rows


def unpack(
    parts: Parts, settings: Mapping[str, Any], names: Names, timeline: Timeline, place: Array
) -> World:
    """The world behind stored arrays; new keys are behind those that have been stored."""
    p = np.zeros(1, L.SETTINGS)
    for name, value in settings.items():
        p[name] = value
    keys, cursors = parts["keys"], parts["cursors"]
    checks = parts["passes"].shape[1]
    p["cursors"], p["most_checks"] = len(cursors), checks
    p["rank_ms"], p["refusal_key"], p["lost_key"] = NULL, -1, -1
    fresh = len(keys) - parts["counts"].shape[1]
    counts = np.concatenate([parts["counts"], np.zeros((L.KEY_POOLS, fresh), np.int64)], axis=1)
    pools = {
        name: _pool(parts[name], L.LEDGER_COLUMNS if name == "ledgers" else columns)
        for name, columns in POOLS.items()
    }
    links = np.zeros(len(keys), L.LINK)
    links["place"] = place
    data, lengths = names.arrays()
    tops = np.zeros(5, np.int64)
    tops[L.LEDGERS], tops[L.SAMPLES] = len(pools["ledgers"]), len(pools["samples"])
    tops[L.PRODUCERS], tops[L.RANGES] = len(pools["producers"]), len(pools["ranges"])
    tops[L.SLOTS] = len(cursors)
    producers = pools.pop("producers")
    store = Store(
        settings=p,
        keys=keys,
        links=links,
        cursors=cursors,
        slots=np.arange(len(cursors)).reshape(-1, 1),
        spans=_starts(counts),
        range_spans=_starts(parts["range_count"]),
        tops=tops,
        text=np.require(data, requirements="W"),
        text_start=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
        order=np.zeros(16, np.int64),
        **pools,
    )
    return World(
        store=store,
        producers=producers,
        passes=np.concatenate([parts["passes"], np.zeros((fresh, checks), np.int64)]),
        seen_bytes=parts["seen_bytes"],
        seen_consumed=parts["seen_consumed"],
        slopes=np.zeros(checks * (checks - 1) // 2 + 1),
        quota=np.zeros(1, L.QUOTA),
        **timeline._asdict(),
    )


def _grown(array: Array, need: int) -> Array:
    """An array with at least so many elements, twice as many if it is short."""
    return array if need <= len(array) else grown(array, 2 * need)


def more_room(w: World) -> World:
    """The world with more room where an array is short."""
    e = w.store
    most = e.spans[:, :, 1].max(axis=1, initial=0)

    def pool(array: Array, number: L.Int) -> Array:
        return _grown(array, int(e.tops[number] + 2 * most[number] + 8))

    cursors = int(e.settings[0]["cursors"]) + 1
    store = e._replace(
        ledgers=pool(e.ledgers, L.LEDGERS),
        samples=pool(e.samples, L.SAMPLES),
        slots=pool(e.slots, L.SLOTS),
        cursors=_grown(e.cursors, cursors),
        range_spans=_grown(e.range_spans, cursors),
        ranges=_grown(e.ranges, int(e.tops[L.RANGES] + room_for(L.MOST_RANGES))),
        order=_grown(e.order, int(most[L.SLOTS]) + 2),
    )
    return w._replace(
        store=store,
        producers=pool(w.producers, L.PRODUCERS),
        seen_bytes=_grown(w.seen_bytes, cursors),
        seen_consumed=_grown(w.seen_consumed, cursors),
    )


@numba.njit(cache=True, nogil=True)
def _gather(pool: Array, spans: Array, kept: Array, out: Array) -> None:
    """Rows of the blocks to keep, one block after the other, as columns."""
    at = 0
    for i in kept:
        for row in range(spans[i, 0], spans[i, 0] + spans[i, 1]):
            for j in range(len(out)):
                out[j, at] = pool[row, j]
            at += 1


def _gathered(pool: Array, spans: Array, kept: Array, columns: int) -> Array:
    out = np.empty((columns, int(spans[kept, 1].sum())), np.int64)
    _gather(pool, spans, kept, out)
    return out


def pack(w: World, stays: Array) -> tuple[Parts, Array]:
    """The arrays to store, without keys that are equivalent to new ones; and the next pass of each
    stored key (NULL: never).
    """
    e = w.store
    keys = e.keys
    is_kept = _kept(e, stays)
    kept = np.flatnonzero(is_kept)
    lives = is_kept & (keys["last_ms"] != NULL) & (keys["base"] >= 0)
    due = np.where(lives, e.links["due_ms"], NULL)[kept]
    order = _gathered(e.slots, e.spans[L.SLOTS], kept, 1)[0]
    if len(kept) < len(keys):
        number = np.full(len(keys), -1, np.int64)
        number[kept] = np.arange(len(kept))
        e.cursors["key"][order] = number[e.cursors["key"][order]]
        keys = picked(keys, kept)
    keys["cached_name"][keys["cached"] == 0] = -1
    parts: Parts = {"keys": keys, "passes": w.passes[kept]}
    parts["counts"] = np.ascontiguousarray(e.spans[:, kept, 1])
    for i, pool in enumerate((e.ledgers, e.samples, w.producers)):
        parts[_COUNTS[i]] = _gathered(pool, e.spans[i], kept, POOLS[_COUNTS[i]])
    parts["range_count"] = np.ascontiguousarray(e.range_spans[order, 1])
    parts["ranges"] = _gathered(e.ranges, e.range_spans, order, L.RANGE_COLUMNS)
    parts["cursors"] = picked(e.cursors, order)
    parts["seen_bytes"], parts["seen_consumed"] = w.seen_bytes[order], w.seen_consumed[order]
    return parts, due


def _kept(e: Store, stays: Array) -> Array:
    """Keys with contents, or that are kept for their clocks."""
    k = e.keys
    kept = e.spans[:, :, 1].any(axis=0) | (k["cached"] != 0) | (k["was"] != 0)
    kept |= stays
    return kept
