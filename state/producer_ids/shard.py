"""State of one shard of `producer_ids`: users, their filters and sensors, policies; as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from state.engine import structs
from state.engine.store import Columns, Plain, RecordSet, Store, Struct, Texts
from state.engine.tables import in_use, table
from state.engine.wall_job import SharedShard
from state.producer_ids import layout as L
from state.producer_ids.declaration import COLUMNS, NAME, STATE_VERSION, USER
from state.producer_ids.layout import NULL, Array, KnownId, World
from state.producer_ids.shared import MEANING, Timeline

_SAMPLE_COLUMNS = ("sample_start", "sample_last", "sample_total")
KEPT = Store(
    NAME,
    STATE_VERSION,
    Plain("shape"),
    Texts("config"),
    Struct("meaning", MEANING, ("name",)),
    Columns("keys", L.KEY, ("cluster", "broker", "user", "feed")),
    Columns("filters", L.FILTER, derived=L.DERIVED_FILTER),
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


def unpack(
    parts: Mapping[str, Array], settings: Mapping[str, Any], records: int, timeline: Timeline
) -> World:
    """The world behind stored arrays, with room for a number of records and its lists linked."""
    p = np.zeros(1, L.SETTINGS)
    for name, value in settings.items():
        p[name] = value
    keys, filters = parts["keys"], parts["filters"]
    live, exact = len(filters), bool(p[0]["exact"])
    p["words"], p["samples"] = len(parts["words"]), len(parts["sample_start"])
    p["next_serial"] = live + len(keys)
    p["row_key"], p["row_ms"] = -1, NULL
    grown = structs.grown(filters, live + records)
    grown["key"][live:] = -1
    grown["next"][live:] = np.append(np.arange(live + 1, live + records), -1)[:records]
    p["free_filter"] = live if records else -1
    ids = np.zeros(len(parts["ids"]), KnownId.dtype)
    ids["owner"], ids["pid"] = np.repeat(np.arange(live), filters["items"] * exact), parts["ids"]
    counted = structs.copied(parts["counted"])
    counted["owner"] += live
    world = World(
        settings=p,
        keys=keys,
        links=np.zeros(len(keys), L.LINK),
        own=timeline.own,
        filters=grown,
        words=parts["words"],
        free=np.full((2, L.CLASSES), -1, np.int64),
        ids=table(KnownId, ids, len(ids) + records * exact),
        counted=table(KnownId, counted, len(counted) + records * exact),
        turns=timeline.turns,
        turn_start=timeline.turn_start,
        defaults=timeline.defaults,
        groups=timeline.groups,
        document_rank=timeline.document_rank,
        document_bound=timeline.document_bound,
        shared_ms=timeline.shared_ms,
        **{name: parts[name] for name in _SAMPLE_COLUMNS},
    )
    _link(world, live, timeline.place)
    return world


@numba.njit(cache=True, nogil=True)
def _link(w: World, live: int, place: Array) -> None:
    p = w.settings[0]
    samples, words = 0, 0
    for i in range(len(w.keys)):
        k, used = w.links[i], w.keys[i]["used"]
        k["place"], k["first"], k["last"], k["live"], k["serial"] = place[i], -1, -1, 0, live + i
        k["sample_at"], k["sample_room"] = samples, used
        samples += used
    for i in range(live):
        f = w.filters[i]
        k = w.links[f["key"]]
        f["previous"], f["next"], f["serial"] = k["last"], -1, i
        if k["last"] >= 0:
            w.filters[k["last"]]["next"] = i
        else:
            k["first"] = i
        k["last"] = i
        k["live"] += 1
        room = 0
        if p["exact"] == 0:
            room = p["bits_words"] if f["dense"] != 0 else f["items"]
        f["at"], f["room"] = words, room
        words += room


def more_room(w: World) -> World:
    """The world with twice the room of the flat arrays that are short."""
    p = w.settings[0]
    need = int(p["words"] + p["bits_words"] + 2 * L.LISTED_MOST)
    if need > len(w.words):
        room = 2 * need - len(w.words)
        w = w._replace(words=np.concatenate([w.words, np.zeros(room, np.uint64)]))
    need = int(p["samples"]) + 2 * int(w.keys["used"].max(initial=0)) + 2
    if need > len(w.sample_start):
        room = 2 * need - len(w.sample_start)
        samples: dict[str, Any] = {
            name: np.concatenate([getattr(w, name), np.zeros(room, getattr(w, name).dtype)])
            for name in _SAMPLE_COLUMNS
        }
        w = w._replace(**samples)
    return w


@numba.njit(cache=True, nogil=True)
def _line_up(w: World, kept: Array, order: Array) -> int:
    """Places of the filters of the keys to keep, key by key, oldest first."""
    count = 0
    for i in range(len(w.links)):
        if not kept[i]:
            continue
        at = w.links[i]["first"]
        while at >= 0:
            order[count] = at
            count += 1
            at = w.filters[at]["next"]
    return count


@numba.njit(cache=True, nogil=True)
def _gather(flat: Array, start: Array, count: Array, out: Array) -> None:
    at = 0
    for i in range(len(start)):
        for j in range(start[i], start[i] + count[i]):
            out[at] = flat[j]
            at += 1


def _gathered(flat: Array, start: Array, count: Array) -> Array:
    out = np.empty(int(count.sum()), flat.dtype)
    _gather(flat, np.ascontiguousarray(start), np.ascontiguousarray(count), out)
    return out


def pack(w: World, stays: Array) -> dict[str, Array]:
    """The arrays to store, without keys that are equivalent to new ones; inverse of `unpack`."""
    p = w.settings[0]
    counted = _remembered(w)
    kept = _kept(w, stays, counted)
    number = np.full(len(w.keys) + 1, -1, np.int64)
    number[:-1][kept] = np.arange(int(kept.sum()))
    order = np.empty(len(w.filters), np.int64)
    order = order[: _line_up(w, kept, order)]
    keys, links = w.keys, w.links
    if not kept.all():
        keys, links = structs.picked(keys, kept), structs.picked(links, kept)
    _forget_idle(keys, p["idle_ms"])
    filters = structs.picked(w.filters, order)
    found = {
        name: _gathered(getattr(w, name), links["sample_at"], keys["used"])
        for name in _SAMPLE_COLUMNS
    }
    if p["exact"]:
        found["words"], found["ids"] = np.zeros(0, np.uint64), _members(w, filters["serial"])
    else:
        length = np.where(filters["dense"] != 0, p["bits_words"], filters["items"])
        found["words"] = _gathered(w.words, filters["at"], length)
        found["ids"] = np.zeros(0, np.int64)
    filters["key"] = number[filters["key"]]
    counted["owner"] = number[counted["owner"]]
    for name in L.DERIVED_FILTER:
        filters[name] = 0
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
