"""State of one shard of `producer_ids`: users, their filters and sensors, policies; as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from state.engine import structs
from state.engine.store import Columns, Plain, RecordSet, Store, Struct, Texts
from state.engine.tables import (
    children,
    in_order,
    in_use,
    more_children,
    moved,
    table,
    with_room,
)
from state.engine.wall_job import SharedShard
from state.producer_ids import layout as L
from state.producer_ids.declaration import COLUMNS, NAME, STATE_VERSION, USER
from state.producer_ids.layout import NULL, Array, IdFilter, KnownId, User, World
from state.producer_ids.shared import MEANING, Timeline

_SAMPLE_COLUMNS = ("sample_start", "sample_last", "sample_total")
KEPT = Store(
    NAME,
    STATE_VERSION,
    Plain("shape"),
    Texts("config"),
    Struct("meaning", MEANING, ("name",)),
    User.part("keys"),
    Columns("filters", IdFilter.dtype, derived=L.DERIVED_FILTER),
    KnownId.part("counted"),
    Plain("words", np.uint64),
    Plain("ids"),
    Plain(_SAMPLE_COLUMNS[0]),
    Plain(_SAMPLE_COLUMNS[1]),
    Plain(_SAMPLE_COLUMNS[2], np.float64),
    RecordSet("waiting", COLUMNS, (USER,)),
    RecordSet("shared", COLUMNS, (USER,)),
)
_PARTS = ("keys", "filters", "counted", "words", "ids", *_SAMPLE_COLUMNS)


@dataclass
class Shard(SharedShard):
    """What one shard knows between two calls.

    Filters and samples are in the order of their keys, the oldest filter of a key first; `words`
    has bits of filters or lists of ids, `ids` the members of exact filters, one filter after the
    other.
    """

    shape: tuple[int, int, int]
    """Bits, hashes and whether exact of the filters."""


def read(data: bytes | None) -> Shard:
    """The shard behind its bytes, or a new one."""
    found, names = KEPT.opened(data)
    bits, hashes, exact = found["shape"].tolist() or (0, 0, 0)
    return Shard(
        names,
        {name: found[name] for name in _PARTS},
        found["waiting"],
        found["shared"],
        found["meaning"],
        found["config"],
        (bits, hashes, exact),
    )


def write(shard: Shard) -> bytes:
    """The bytes of a shard."""
    return KEPT.write(
        {
            **shard.parts,
            "shape": np.array(shard.shape, np.int64),
            "config": shard.config or (),
            "meaning": shard.meaning,
            "waiting": shard.waiting,
            "shared": shard.shared,
        },
        shard.names,
    )


# -- between state and kernel ----------------------------------------------------------------


def unpack(parts: Mapping[str, Array], settings: Mapping[str, Any], timeline: Timeline) -> World:
    """The world behind stored arrays."""
    p = np.zeros(1, L.SETTINGS)
    for name, value in settings.items():
        p[name] = value
    keys, live = parts["keys"], len(parts["filters"])
    exact, bits_words = bool(p[0]["exact"]), p[0]["bits_words"]
    p["words"], p["samples"] = len(parts["words"]), len(parts["sample_start"])
    p["next_serial"] = live + len(keys)
    p["row_key"], p["row_ms"] = -1, NULL
    links = np.zeros(len(keys), L.LINK)
    links["place"], links["serial"] = timeline.place, live + np.arange(len(keys))
    links["sample_at"], links["sample_room"] = _blocks(keys["used"])
    filters = _numbered(parts["filters"], bits_words, exact)
    links["live"] = np.bincount(filters["key"], minlength=len(keys))
    ids = np.zeros(len(parts["ids"]), KnownId.dtype)
    ids["owner"], ids["pid"] = np.repeat(np.arange(live), filters["items"] * exact), parts["ids"]
    counted = structs.copied(parts["counted"])
    counted["owner"] += live
    known = table(IdFilter, filters)
    return World(
        settings=p,
        keys=keys,
        links=links,
        own=timeline.own,
        filters=known,
        live=children(filters["key"], np.arange(live), len(keys), len(known.rows)),
        words=parts["words"],
        free=np.full((2, L.CLASSES), -1, np.int64),
        ids=table(KnownId, ids),
        counted=table(KnownId, counted),
        turns=timeline.turns,
        turn_start=timeline.turn_start,
        defaults=timeline.defaults,
        groups=timeline.groups,
        document_rank=timeline.document_rank,
        document_bound=timeline.document_bound,
        shared_ms=timeline.shared_ms,
        **{name: parts[name] for name in _SAMPLE_COLUMNS},
    )


def _numbered(filters: Array, bits_words: int, exact: bool) -> Array:
    """The filters with their serials and, unless exact, with where their words are."""
    found = structs.copied(filters)
    found["serial"] = np.arange(len(found))
    if not exact:
        found["at"], found["room"] = _blocks(_words_of(found, bits_words))
    return found


def _blocks(size: Array) -> tuple[Array, Array]:
    """Where blocks of these sizes begin that follow each other, and the sizes."""
    return np.cumsum(size) - size, size


def _words_of(filters: Array, bits_words: int) -> Array:
    """How many words the bits or the ids of filters are."""
    return np.where(filters["dense"] != 0, bits_words, filters["items"])


def more_room(w: World) -> World:
    """The world with room for one more record where it may be short."""
    p = w.settings[0]
    filters = with_room(IdFilter, w.filters, 1)
    samples = int(p["samples"]) + 2 * int(w.keys["used"].max(initial=0)) + 2
    return w._replace(
        filters=filters,
        live=more_children(w.live, len(w.keys), len(filters.rows)),
        ids=with_room(KnownId, w.ids, 1),
        counted=with_room(KnownId, w.counted, 1),
        words=_roomy(w.words, int(p["words"] + p["bits_words"] + 2 * L.LISTED_MOST)),
        **{name: _roomy(getattr(w, name), samples) for name in _SAMPLE_COLUMNS},
    )


def _roomy(flat: Array, need: int) -> Array:
    """A flat array, or a larger one if it has fewer elements than needed."""
    return flat if need <= len(flat) else structs.grown(flat, 2 * need)


def _gathered(flat: Array, start: Array, size: Array) -> Array:
    """Blocks of a flat array, one after the other."""
    found: Array = flat[np.repeat(start - _blocks(size)[0], size) + np.arange(size.sum())]
    return found


def pack(w: World, stays: Array) -> dict[str, Array]:
    """The arrays to store, without users that are equivalent to new ones; inverse of `unpack`."""
    p, counted = w.settings[0], _remembered(w)
    kept = np.flatnonzero(_kept(w, stays, counted))
    keys, links = structs.picked(w.keys, kept), structs.picked(w.links, kept)
    _forget_idle(keys, p["idle_ms"])
    filters = structs.picked(w.filters.rows, in_order(w.live, kept))
    words = _words_of(filters, p["bits_words"]) * (not p["exact"])
    found = {
        "words": _gathered(w.words, filters["at"], words),
        "ids": _members(w, filters["serial"]),
        **{
            name: _gathered(getattr(w, name), links["sample_at"], keys["used"])
            for name in _SAMPLE_COLUMNS
        },
    }
    filters["key"] = moved(filters["key"], kept, len(w.keys))
    counted["owner"] = moved(counted["owner"], kept, len(w.keys))
    return {**found, "keys": keys, "filters": filters, "counted": counted}


@numba.njit(cache=True, nogil=True)
def _by_owner(entries: Array, position: Array, starts: Array, order: Array) -> None:
    """Places of entries in the order of their owners' positions, -1 for those to leave out;
    `starts` has where each owner's begin, and is moved to where they end."""
    for i in range(len(entries)):
        at = position[entries[i]["owner"]]
        if at >= 0:
            order[starts[at]] = i
            starts[at] += 1


def _owned(entries: Array, serials: Array, many: int) -> tuple[Array, Array]:
    """The entries of owners with some serials, owner by owner, and the position of each one's;
    `many`: all serials are below."""
    position = np.full(many, -1, np.int64)
    position[serials] = np.arange(len(serials))
    place = position[entries["owner"]]
    count = np.bincount(place[place >= 0], minlength=len(serials))
    order = np.empty(int(count.sum()), np.int64)
    _by_owner(entries, position, np.cumsum(count) - count, order)
    return entries[order], place[order]


def _members(w: World, serials: Array) -> Array:
    """Ids of exact filters, filter by filter."""
    found, _ = _owned(in_use(w.ids), serials, int(w.settings[0]["next_serial"]))
    return np.ascontiguousarray(found["pid"])


def _remembered(w: World) -> Array:
    """Ids that were counted and are not forgotten, key by key; `owner` is then the key."""
    entries = in_use(w.counted)
    if not len(entries):
        return entries.copy()
    found, key = _owned(entries, w.links["serial"], int(w.settings[0]["next_serial"]))
    lost, has_clock, clock, expiration = (
        w.keys[f][key] for f in ("lost_ms", "has_clock", "clock_ms", "expiration_ms")
    )
    found["owner"] = key
    known = (found["at_ms"] > lost) & ((has_clock == 0) | (clock - found["at_ms"] < expiration))
    return found if known.all() else found[known]


def _is_idle(keys: Array, idle_ms: int) -> Array:
    """Which sensors have been idle for so long that they count as new."""
    recorded = keys["recorded_ms"]
    return np.asarray(
        (recorded != NULL) & (keys["has_clock"] != 0) & (keys["clock_ms"] - recorded > idle_ms)
    )


def _forget_idle(keys: Array, idle_ms: int) -> None:
    """Store a sensor that counts as new as a new one, as a key is that comes again."""
    idle = _is_idle(keys, idle_ms)
    for name in ("tokens", "refilled_ms", "used", "current"):
        keys[name][idle] = 0
    keys["recorded_ms"][idle] = NULL


def _kept(w: World, stays: Array, counted: Array) -> Array:
    p, k = w.settings[0], w.keys
    idle = (k["recorded_ms"] == NULL) | _is_idle(k, p["idle_ms"])
    kept = (k["open"] != 0) | (w.links["live"] > 0) | ~idle
    kept |= stays
    kept[counted["owner"]] = True
    return kept
