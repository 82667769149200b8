"""State of one shard of `backlog`: topics with their ledgers, cursors and samples; as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numba
import numpy as np

from state.backlog import layout as L
from state.backlog.declaration import COLUMNS, NAME, STATE_VERSION
from state.backlog.layout import NULL, Array, Cursor, Store, Timeline, TopicProducer, World
from state.backlog.pool import room_for
from state.backlog.shared import MEANING
from state.engine.codec import FAST
from state.engine.names import Names
from state.engine.owned import beside, by_count, by_field
from state.engine.records import Records, empty
from state.engine.resting import Pages, Resting
from state.engine.store import Plain, Pool, RecordSet, Struct, Texts, turn_back
from state.engine.store import Store as Kept
from state.engine.structs import grown, picked
from state.engine.tables import (
    Children,
    Indexed,
    StateRow,
    children,
    in_order,
    more_children,
    moved,
    table,
    with_room,
)
from state.engine.wall_job import SharedShard

POOLS = {"ledgers": 4, "samples": 4, "ranges": 3}
"""Pools that are stored, with the columns of each: those of a ledger that are not derived."""
SEEN = ("seen_bytes", "seen_consumed")
Parts = dict[str, Array]
KEPT = Kept(
    NAME,
    STATE_VERSION,
    Plain("checks"),
    Plain("settings"),
    Texts("config"),
    Struct("meaning", MEANING, ("name",)),
    Pages("resting", ("due_ms", "due_plan_ms")),
    L.BacklogTopic.part("keys"),
    replace(Cursor.part("cursors"), derived=L.DERIVED_CURSOR),
    TopicProducer.part("producers"),
    *(Pool(name, columns) for name, columns in POOLS.items()),
    Pool("counts", L.KEY_POOLS),
    Plain("range_count"),
    *(Plain(name) for name in ("passes", *SEEN)),
    RecordSet("waiting", COLUMNS),
    RecordSet("shared", COLUMNS),
)
"""Stored parts; `passes` and the checks of cursors are flat, with as many columns as `checks`."""
_PARTS = ("keys", "cursors", "producers", *POOLS, "passes", *SEEN, "counts", "range_count")


def _nothing(checks: int) -> Parts:
    blank = KEPT.blank()
    return {name: blank[name] for name in _PARTS} | {
        name: np.zeros((0, checks), np.int64) for name in ("passes", *SEEN)
    }


@dataclass
class Shard(SharedShard):
    """The state of one shard between two calls.

    Cursors are in the order of their keys and, within a key, of their names, producers in that of
    their keys; rows of pools, which are stored column by column, in the order of their keys or
    cursors.
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


OWNED = (
    beside("passes", "keys"),
    beside("counts", "keys", axis=1),
    by_field("cursors", "keys", "key"),
    by_count("ledgers", "keys", lambda s: s.parts["counts"][L.LEDGERS], axis=1),
    by_count("samples", "keys", lambda s: s.parts["counts"][L.SAMPLES], axis=1),
    by_field("producers", "keys", "key"),
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
    keys, checks = parts["keys"], parts["passes"].shape[1]
    p["most_checks"] = checks
    fresh = len(keys) - parts["counts"].shape[1]
    counts = np.concatenate([parts["counts"], np.zeros((L.KEY_POOLS, fresh), np.int64)], axis=1)
    pools = {
        name: _pool(parts[name], L.LEDGER_COLUMNS if name == "ledgers" else columns)
        for name, columns in POOLS.items()
    }
    links = np.zeros(len(keys), L.LINK)
    links["place"] = place
    for name in ("cursors", "producers"):
        links[name] = np.bincount(parts[name]["key"], minlength=len(keys))
    data, lengths = names.arrays()
    cursors, cursors_of = _owned_table(Cursor, parts["cursors"], len(keys))
    producers, producers_of = _owned_table(TopicProducer, parts["producers"], len(keys))
    store = Store(
        settings=p,
        keys=keys,
        links=links,
        cursors=cursors,
        cursors_of=cursors_of,
        spans=_starts(counts),
        range_spans=_starts(parts["range_count"]),
        tops=np.array([len(pool) for pool in pools.values()]),
        text=np.require(data, requirements="W"),
        text_start=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
        order=np.zeros(16, np.int64),
        acked=np.zeros((0, 3), np.int64),
        **pools,
    )
    return World(
        store=store,
        producers=producers,
        producers_of=producers_of,
        passes=np.concatenate([parts["passes"], np.zeros((fresh, checks), np.int64)]),
        seen_bytes=parts["seen_bytes"],
        seen_consumed=parts["seen_consumed"],
        slopes=np.zeros(checks * (checks - 1) // 2 + 1),
        quota=np.zeros(1, L.QUOTA),
        timeline=timeline,
    )


def _owned_table(row: type[StateRow], rows: Array, keys: int) -> tuple[Indexed, Children]:
    """Rows that are in the order of their keys, and which of them each key has."""
    t = table(row, rows)
    return t, children(rows["key"], np.arange(len(rows)), keys, len(t.rows))


def _grown(array: Array, need: int) -> Array:
    """An array with at least so many elements, twice as many if it is short."""
    return array if need <= len(array) else grown(array, 2 * need)


def more_room(w: World) -> World:
    """The world with more room where an array is short. It comes before the first record, since only
    then what is beside cursors is as long as their table."""
    e = w.store
    most = e.spans[:, :, 1].max(axis=1, initial=0)

    def pool(array: Array, number: L.Int) -> Array:
        return _grown(array, int(e.tops[number] + 2 * most[number] + 8))

    cursors, producers = with_room(Cursor, e.cursors, 1), with_room(TopicProducer, w.producers, 1)
    room = len(cursors.rows)

    def beside(array: Array) -> Array:
        return array if len(array) == room else grown(array, room)

    store = e._replace(
        ledgers=pool(e.ledgers, L.LEDGERS),
        samples=pool(e.samples, L.SAMPLES),
        cursors=cursors,
        cursors_of=more_children(e.cursors_of, len(e.keys), room),
        range_spans=beside(e.range_spans),
        ranges=_grown(e.ranges, int(e.tops[L.RANGES] + room_for(L.MOST_RANGES))),
        order=_grown(e.order, int(e.links["cursors"].max(initial=0)) + 2),
    )
    return w._replace(
        store=store,
        producers=producers,
        producers_of=more_children(w.producers_of, len(e.keys), len(producers.rows)),
        seen_bytes=beside(w.seen_bytes),
        seen_consumed=beside(w.seen_consumed),
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
    lives = is_kept & (keys["last_ms"] != NULL) & (keys["policy_topic"] >= 0)
    due = np.where(lives, e.links["due_ms"], NULL)[kept]
    order = in_order(e.cursors_of, kept)
    parts: Parts = {
        "keys": picked(keys, kept),
        "passes": w.passes[kept],
        "counts": np.ascontiguousarray(e.spans[:, kept, 1]),
        "cursors": picked(e.cursors.rows, order),
        "producers": picked(w.producers.rows, in_order(w.producers_of, kept)),
        "ledgers": _gathered(e.ledgers, e.spans[L.LEDGERS], kept, POOLS["ledgers"]),
        "samples": _gathered(e.samples, e.spans[L.SAMPLES], kept, POOLS["samples"]),
        "range_count": np.ascontiguousarray(e.range_spans[order, 1]),
        "ranges": _gathered(e.ranges, e.range_spans, order, POOLS["ranges"]),
        "seen_bytes": w.seen_bytes[order],
        "seen_consumed": w.seen_consumed[order],
    }
    for name in ("cursors", "producers"):
        parts[name]["key"] = moved(parts[name]["key"], kept, len(keys))
    parts["keys"]["cached_name"][parts["keys"]["cached"] == 0] = -1
    return parts, due


def _kept(e: Store, stays: Array) -> Array:
    """Keys with contents, or that are kept for their clocks."""
    k, has = e.keys, e.links
    kept = e.spans[:, :, 1].any(axis=0) | (has["cursors"] != 0) | (has["producers"] != 0)
    kept |= (k["cached"] != 0) | (k["was"] != 0) | stays
    return kept
