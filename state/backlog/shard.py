"""State of one shard of `backlog`: topics with their ledgers, cursors and samples; as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numba
import numpy as np

from state.backlog import layout as L
from state.backlog.layout import NULL, Array, Store, World
from state.backlog.sequence import COLUMNS, TEXTS
from state.backlog.shared import MEANING, Timeline
from state.engine import codec
from state.engine.names import Names
from state.engine.records import FLAGS, SOURCE_COLUMNS, Records, empty

NAME = "backlog"
VERSION = 2
KEY_NAMES = ("cluster", "topic", "base", "namespace", "broker", "feed", "cached_name")
_COMPACT_BELOW = 0.75
"""Names are renumbered when less than this share of them is in use."""
_LAYOUTS: Mapping[str, np.dtype] = {"keys": L.KEY, "cursors": L.CURSOR}
POOLS = {
    "ledgers": L.STORED_LEDGER, "samples": L.SAMPLE_COLUMNS, "producers": L.PRODUCER_COLUMNS,
    "ranges": L.RANGE_COLUMNS,
}
"""Pools that are kept, with the columns of each."""
_COUNTS = ("ledgers", "samples", "producers", "cursors")
"""What the counts of a key are of, in the order of the pools."""
SEEN = ("seen_bytes", "seen_consumed")
_BLOCK = 64
Parts = dict[str, Array]


def _nothing(checks: int) -> Parts:
    parts: Parts = {name: np.zeros(0, kind) for name, kind in _LAYOUTS.items()}
    parts |= {name: np.zeros((columns, 0), np.int64) for name, columns in POOLS.items()}
    parts |= {name: np.zeros((0, checks), np.int64) for name in ("passes", *SEEN)}
    return {
        **parts, "counts": np.zeros((L.KEY_POOLS, 0), np.int64),
        "range_count": np.zeros(0, np.int64),
    }


@dataclass
class Resting:
    """Topics of which nothing is read; see `state.backlog.resting`."""

    key: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    """Hashes of cluster and topic, in order."""
    page: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    """Which page each of them is in."""
    due_ms: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    """When the first pass of each page is due; NULL: never."""
    pages: list[bytes] = field(default_factory=list)
    """Shards of their own, without shared and waiting records."""


@dataclass
class Shard:
    """What one shard knows between two calls."""

    names: Names
    parts: Parts
    """Cursors are in the order of their keys and, of one key, of their names; rows of pools,
    which are kept column by column, in the order of the keys or cursors that have them."""
    waiting: Records = field(default_factory=lambda: empty(COLUMNS))
    shared: Records = field(default_factory=lambda: empty(COLUMNS))
    """Policies and broker starts, in order."""
    meaning: Array = field(default_factory=lambda: np.zeros(0, MEANING))
    config: tuple[str, ...] | None = None
    """Documents of the configuration that `shared` has; None before the first call."""
    settings: int = 0
    """Hash of the parameters that the last call was judged by."""
    resting: Resting = field(default_factory=Resting)


def new(checks: int) -> Shard:
    """A shard that has seen nothing, whose cursors remember some checks."""
    return Shard(Names(), _nothing(checks))


def read(data: bytes, checks: int | None = None) -> Shard:
    """The shard behind its bytes; `checks`: how many its cursors remember from now on."""
    arrays = codec.decode(NAME, VERSION, data)
    names = Names(arrays["names"], arrays["name_lengths"])

    def records(prefix: str) -> Records:
        return {
            name: arrays[f"{prefix}.{name}"]
            for name in (*COLUMNS, *SOURCE_COLUMNS, *FLAGS, "ingest_ms")
        }

    parts = {name: _rows(kind, name, arrays) for name, kind in _LAYOUTS.items()}
    for name, columns in POOLS.items():
        parts[name] = arrays[name].reshape(columns, -1)
    parts["counts"] = arrays["counts"].reshape(L.KEY_POOLS, -1)
    parts["range_count"] = arrays["range_count"]
    had = int(arrays["checks"][0])
    for name in ("passes", *SEEN):
        parts[name] = _refit(arrays[name].reshape(-1, had), had if checks is None else checks)
    if checks is not None:
        parts["cursors"]["checks"] = np.minimum(parts["cursors"]["checks"], checks)
    return Shard(
        names, parts, records("waiting"), records("shared"), _typed(arrays["meaning"]),
        tuple(names.get(int(text)) for text in arrays["config"]), int(arrays["settings"][0]),
        _resting(arrays),
    )


def _resting(arrays: Mapping[str, Array]) -> Resting:
    end = np.cumsum(arrays["resting.length"])
    data = arrays["resting.pages"].tobytes()
    pages = [
        data[at - size : at]
        for at, size in zip(end.tolist(), arrays["resting.length"].tolist(), strict=True)
    ]
    return Resting(
        arrays["resting.key"], arrays["resting.page"], arrays["resting.due_ms"], pages
    )


def _refit(values: Array, columns: int) -> Array:
    """The last columns of values, or more of them with zeros in front."""
    had = values.shape[1]
    if had >= columns:
        return np.ascontiguousarray(values[:, had - columns :])
    return np.concatenate([np.zeros((len(values), columns - had), np.int64), values], axis=1)


def _typed(stored: Array) -> Array:
    found = np.zeros(len(stored), MEANING)
    for column in MEANING.names or ():
        found[column] = stored[column]
    return found


@numba.njit(cache=True, nogil=True)
def _turn(rows: Array, columns: Array) -> None:
    """Copy rows (n, m) into columns (m, n), block by block: all fields in one pass."""
    for begin in range(0, len(rows), _BLOCK):
        end = min(begin + _BLOCK, len(rows))
        for j in range(len(columns)):
            for i in range(begin, end):
                columns[j, i] = rows[i, j]


@numba.njit(cache=True, nogil=True)
def _turn_back(columns: Array, rows: Array) -> None:
    for begin in range(0, columns.shape[1], _BLOCK):
        end = min(begin + _BLOCK, columns.shape[1])
        for j in range(len(columns)):
            for i in range(begin, end):
                rows[i, j] = columns[j, i]


def _fields(layout: np.dtype) -> list[tuple[str, Any]]:
    """Names and types of what is kept of a layout, all of 8 bytes."""
    return [
        (name, layout[name]) for name in layout.names or ()
        if layout is not L.CURSOR or name not in L.DERIVED_CURSOR
    ]


def _columns(name: str, array: Array) -> dict[str, Array]:
    """A structured array as one plain array for each field that is kept."""
    fields = _fields(_LAYOUTS[name])
    columns = np.empty((len(fields), len(array)), np.int64)
    _turn(_words(np.ascontiguousarray(array)), columns)
    return {f"{name}.{field}": columns[i].view(kind) for i, (field, kind) in enumerate(fields)}


def _rows(layout: np.dtype, name: str, arrays: Mapping[str, Array]) -> Array:
    """The inverse of `_columns`."""
    stored = [arrays[f"{name}.{field}"].view(np.int64) for field, _ in _fields(layout)]
    found = np.zeros(len(stored[0]), layout)
    _turn_back(np.stack(stored), _words(found))
    return found


def _words(array: Array) -> Array:
    """Structured elements as rows of words, which may be written to."""
    return array.view(np.int64).reshape(len(array), array.dtype.itemsize // 8)


def write(shard: Shard) -> bytes:
    """The bytes of a shard."""
    config = [shard.names.intern_one(text) for text in shard.config or ()]
    arrays: dict[str, Array] = {
        "config": np.array(config, np.int64), "meaning": shard.meaning.copy(),
        "checks": np.array([shard.parts["passes"].shape[1]], np.int64),
        "settings": np.array([shard.settings], np.int64),
        "resting.key": shard.resting.key, "resting.page": shard.resting.page,
        "resting.due_ms": shard.resting.due_ms,
        "resting.length": np.array([len(page) for page in shard.resting.pages], np.int64),
        "resting.pages": np.frombuffer(b"".join(shard.resting.pages), np.uint8),
    }
    for name, part in shard.parts.items():
        arrays |= _columns(name, part) if name in _LAYOUTS else {name: part.reshape(-1)}
    arrays |= {f"waiting.{name}": column for name, column in shard.waiting.items()}
    arrays |= {f"shared.{name}": column for name, column in shard.shared.items()}
    names = _compact(shard.names, arrays)
    arrays["names"], arrays["name_lengths"] = names.arrays()
    return codec.encode(NAME, VERSION, arrays)


def _compact(names: Names, arrays: dict[str, Array]) -> Names:
    """Leave out names that nothing refers to, once they are many."""
    producers = arrays["producers"]
    connections = producers[: len(producers) // L.PRODUCER_COLUMNS]
    inside = [arrays["meaning"]["name"], arrays["config"], connections]
    named = [f"keys.{field}" for field in KEY_NAMES] + ["cursors.name"]
    named += [f"{part}.{name}" for part in ("waiting", "shared") for name in TEXTS]
    used = np.zeros(len(names) + 1, bool)
    for column in (*inside, *(arrays[name] for name in named)):
        used[column] = True
    used = used[:-1]
    if used.sum() >= _COMPACT_BELOW * len(names):
        return names
    smaller, number = names.compact(used)
    for name in named:
        arrays[name] = number[arrays[name]]
    for column in inside:
        column[...] = number[column]
    return smaller


# -- between state and kernel ----------------------------------------------------------------


def _starts(counts: Array) -> Array:
    """Spans (at, used, room) of blocks that follow one another."""
    spans = np.empty((*counts.shape, 3), np.int64)
    spans[..., 1] = spans[..., 2] = counts
    spans[..., 0] = np.cumsum(counts, axis=-1) - counts
    return spans


def _pool(stored: Array, columns: int) -> Array:
    rows = np.zeros((stored.shape[1], columns), np.int64)
    _turn_back(stored, rows)
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
    p["rank_ms"], p["refusal_key"] = NULL, -1
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
        settings=p, keys=keys, links=links, cursors=cursors,
        slots=np.arange(len(cursors)).reshape(-1, 1), spans=_starts(counts),
        range_spans=_starts(parts["range_count"]), tops=tops,
        text=np.require(data, requirements="W"),
        text_start=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
        order=np.zeros(16, np.int64), **pools,
    )
    return World(
        store=store, producers=producers,
        passes=np.concatenate([parts["passes"], np.zeros((fresh, checks), np.int64)]),
        seen_bytes=parts["seen_bytes"], seen_consumed=parts["seen_consumed"],
        slopes=np.zeros(checks * (checks - 1) // 2 + 1), quota=np.zeros(1, L.QUOTA),
        **timeline._asdict(),
    )


def _grown(array: Array, need: int) -> Array:
    """An array with at least so many elements, twice as many if it is short."""
    if need <= len(array):
        return array
    more = np.zeros((2 * need - len(array), *array.shape[1:]), array.dtype)
    return np.concatenate([array, more])


def more_room(w: World) -> World:
    """The world with more room where an array is short."""
    e = w.store
    most = e.spans[:, :, 1].max(axis=1, initial=0)

    def pool(array: Array, number: L.Int) -> Array:
        return _grown(array, int(e.tops[number] + 2 * most[number] + 8))

    cursors = int(e.settings[0]["cursors"]) + 1
    store = e._replace(
        ledgers=pool(e.ledgers, L.LEDGERS), samples=pool(e.samples, L.SAMPLES),
        slots=pool(e.slots, L.SLOTS), cursors=_grown(e.cursors, cursors),
        range_spans=_grown(e.range_spans, cursors),
        ranges=_grown(e.ranges, int(e.tops[L.RANGES] + 2 * L.MOST_RANGES)),
        order=_grown(e.order, int(most[L.SLOTS]) + 2),
    )
    return w._replace(
        store=store, producers=pool(w.producers, L.PRODUCERS),
        seen_bytes=_grown(w.seen_bytes, cursors), seen_consumed=_grown(w.seen_consumed, cursors),
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


def pack(w: World, stream_ms: int) -> tuple[Parts, Array]:
    """The arrays to store, without what is as good as new; and when the next pass of each of their
    keys is due (NULL: never)."""
    e = w.store
    keys = e.keys
    is_kept = _kept(e, stream_ms)
    kept = np.flatnonzero(is_kept)
    lives = is_kept & (keys["last_ms"] != NULL) & (keys["base"] >= 0)
    due = np.where(lives, e.links["due_ms"], NULL)[kept]
    order = _gathered(e.slots, e.spans[L.SLOTS], kept, 1)[0]
    if len(kept) < len(keys):
        number = np.full(len(keys), -1, np.int64)
        number[kept] = np.arange(len(kept))
        e.cursors["key"][order] = number[e.cursors["key"][order]]
        keys = keys[kept]
    keys["cached_name"][keys["cached"] == 0] = -1
    parts: Parts = {"keys": keys, "passes": w.passes[kept]}
    parts["counts"] = np.ascontiguousarray(e.spans[:, kept, 1])
    for i, pool in enumerate((e.ledgers, e.samples, w.producers)):
        parts[_COUNTS[i]] = _gathered(pool, e.spans[i], kept, POOLS[_COUNTS[i]])
    parts["range_count"] = np.ascontiguousarray(e.range_spans[order, 1])
    parts["ranges"] = _gathered(e.ranges, e.range_spans, order, L.RANGE_COLUMNS)
    parts["cursors"] = e.cursors[order]
    parts["seen_bytes"], parts["seen_consumed"] = w.seen_bytes[order], w.seen_consumed[order]
    return parts, due


def _kept(e: Store, stream_ms: int) -> Array:
    """Keys that have something, or a clock that is ahead of the stream's."""
    k = e.keys
    kept = e.spans[:, :, 1].any(axis=0) | (k["cached"] != 0) | (k["was"] != 0)
    kept |= (k["has_clock"] != 0) & (k["clock_ms"] > stream_ms)
    return kept


def describe(shard: Shard) -> dict[str, Any]:
    """Sizes of what a shard keeps."""
    sizes = {
        name: part.shape[-1] if name in POOLS else len(part)
        for name, part in shard.parts.items() if name in (*_LAYOUTS, *POOLS)
    }
    return {
        **sizes, "shared": len(shard.meaning), "waiting": len(shard.waiting["cluster"]),
        "resting": len(shard.resting.key),
    }
