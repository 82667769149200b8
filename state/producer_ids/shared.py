"""Records that hold for every key of a broker: policies and broker starts, kept once per shard.

They stay in their order as long as they can matter. A key has taken those before its clock, so what
holds for it follows from its clock alone. A document of the configuration is one for every broker
of every cluster, earlier than all times; one that was changed is as of the restart's stream time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from state.engine import standing, wall
from state.engine.names import NONE, Names
from state.engine.records import NULL, Array, Records, length
from state.engine.refused import Refused
from state.engine.sequence import POLICY
from state.engine.standing import START
from state.events import KIND_INDEX
from state.producer_ids import layout as L
from state.producer_ids.sequence import SEQUENCE

STARTED = KIND_INDEX["broker_started"]
EVERYWHERE = "*"
DEFAULT_USER = "<default>"
USER, BROKER = 1, 2
SAMPLES = "producer.id.quota.window.num"
SPAN_S = "producer.id.quota.window.size.seconds"
LAYERS = "producer.id.quota.window.count"
EXPIRATION_MS = "producer.id.expiration.ms"
BROKER_KEYS: dict[str, tuple[int, int]] = {
    SAMPLES: (11, 1_000_000), SPAN_S: (3600, 2**31 - 1), LAYERS: (4, 1_000_000),
    EXPIRATION_MS: (86_400_000, 2**62),
}
"""Default and largest value (a larger one is cut to it: products of two stay within 64 bits)."""

MEANING = np.dtype(
    [("what", "<i8"), ("name", "<i8"), ("bound", "<f8"), ("samples", "<i8"), ("span_s", "<i8"),
     ("layers", "<i8"), ("expiration_ms", "<i8"), ("fresh", "|u1")], align=True,
)
"""A shared record: a broker start, a user's bound (NaN: none), settings (0: none)."""
_SETTINGS = ("samples", "span_s", "layers", "expiration_ms")


class Timeline(NamedTuple):
    """Shared records of a shard as the kernel takes them; see `layout.World`."""

    turns: Array
    turn_start: Array
    place: Array
    own: Array
    defaults: Array
    groups: Array
    document_rank: Array
    document_bound: Array
    shared_ms: Array


@lru_cache(maxsize=4096)
def _parsed(text: str) -> tuple[int, str, float, tuple[int, ...]] | None:
    """The content of a document; None for one that this job does not use."""
    document = json.loads(text)
    limits = document.get("limits") or {}
    if document["scope"] == "user":
        bound = limits.get("producer_ids_rate")
        value = float("nan") if bound is None or bound < 0 else float(bound)
        return USER, document["name"], value, (0,) * len(BROKER_KEYS)
    if document["scope"] != "broker":
        return None
    values = [int(min(max(limits.get(k) or 0, 0), most)) for k, (_, most) in BROKER_KEYS.items()]
    return BROKER, document["name"], float("nan"), tuple(values)


def source_of(text: str) -> tuple[str, str]:
    """Scope and name of a document."""
    document = json.loads(text)
    return document["scope"], document["name"]


def meanings(records: Records, names: Names) -> Array:
    """The content of each shared record; `what` is -1 where this job has no use for it."""
    found = np.zeros(length(records), MEANING)
    found["what"], found["name"], found["bound"], found["fresh"] = START, NONE, np.nan, 1
    policies = np.flatnonzero(records["event_type"] == POLICY)
    texts, which = np.unique(records["policy_json"][policies], return_inverse=True)
    said = np.zeros(len(texts), MEANING)
    said["fresh"] = 1
    for row, text in zip(said, texts.tolist(), strict=True):
        document = _parsed(names.get(text))
        if document is None:
            row["what"] = -1
            continue
        row["what"], name, row["bound"], values = document
        row["name"] = names.intern_one(name)
        for field, value in zip(_SETTINGS, values, strict=True):
            row[field] = value
    found[policies] = said[which]
    return found


def merged(
    records: Records, meaning: Array, new: Records, names: Names, refused: Refused
) -> tuple[Records, Array]:
    """Shared records with new ones among them, in order; see `standing.merged`."""
    meaning["fresh"] = 0
    if not length(new):
        return records, meaning
    said = meanings(new, names)
    return standing.merged(records, meaning, new, said, SEQUENCE, names, refused)


def needed(records: Records, meaning: Array, stream_ms: int) -> Array:
    """Which shared records can still matter; a broker's are replaced by its own."""
    sets = ~np.isnan(meaning["bound"])
    for field in _SETTINGS:
        sets |= meaning[field] > 0
    return standing.needed(records, meaning, records["broker"], sets, stream_ms)


# -- what the kernel takes -------------------------------------------------------------------


def timeline(
    records: Records, meaning: Array, keys: Array, names: Names, params: Mapping[str, int]
) -> Timeline:
    """The turns and documents of the brokers and users of a shard's keys."""
    places, place = _places(keys)
    turns, start = _turns(records, meaning, places, names, params)
    users = np.flatnonzero(meaning["what"] == USER)
    default = names.intern_one(DEFAULT_USER)
    everywhere = names.intern_one(EVERYWHERE)
    known, count, member = _grouped(records, meaning, users)
    order = np.argsort(member, kind="stable")
    groups = np.searchsorted(member[order], np.arange(count + 1))
    none = np.full(len(places), default, np.int64)
    defaults = _levels(known, count, places[:, 0], places[:, 1], none, everywhere)
    if count and bool((meaning["name"][users] != default).any()):
        own = _levels(
            known, count, keys["cluster"], keys["broker"], keys["user"], everywhere
        )
        own[keys["user"] == default] = -1
    else:
        own = np.full((len(keys), 3), -1, np.int64)
    return Timeline(
        turns, start, place, own, defaults, groups.astype(np.int64), users[order],
        np.ascontiguousarray(meaning["bound"][users[order]]),
        np.ascontiguousarray(records["ts_wall_ms"]),
    )


def _places(keys: Array) -> tuple[Array, Array]:
    """Clusters and brokers of the keys, and which of them each key is of."""
    n = len(keys)
    zero = np.zeros(n, np.int64)
    known, place = np.zeros((n, 3), np.int64), np.empty(n, np.int64)
    count = wall.intern_tuples(
        known, 0, np.ascontiguousarray(keys["cluster"]), np.ascontiguousarray(keys["broker"]),
        zero, np.ones(n, bool), place,
    )
    return known[:count], place


def _grouped(records: Records, meaning: Array, rows: Array) -> tuple[Array, int, Array]:
    """Groups (cluster, broker, name) of documents, how many, and that of each row."""
    n = len(rows)
    known, member = np.zeros((n, 3), np.int64), np.empty(n, np.int64)
    count = wall.intern_tuples(
        known, 0, records["cluster"][rows], records["broker"][rows],
        np.ascontiguousarray(meaning["name"][rows]), np.ones(n, bool), member,
    )
    return known, count, member


def _levels(
    known: Array, count: int, cluster: Array, broker: Array, name: Array, everywhere: int
) -> Array:
    """Groups of a name: of its broker, of all brokers of the cluster, of the configuration."""
    n = len(name)
    found = np.full((n, 3), -1, np.int64)
    none = np.full(n, NONE, np.int64)
    for i, (c, b) in enumerate((
        (cluster, broker), (cluster, np.full(n, everywhere, np.int64)), (none, none)
    )):
        column = np.empty(n, np.int64)
        wall.intern_tuples(
            known[:count], count,
            np.ascontiguousarray(c, np.int64), np.ascontiguousarray(b, np.int64),
            np.ascontiguousarray(name, np.int64), np.zeros(n, bool), column,
        )
        found[:, i] = column
    return found


def _turns(
    records: Records, meaning: Array, places: Array, names: Names, params: Mapping[str, int]
) -> tuple[Array, Array]:
    """Turns of every broker, in order; the first holds from ever."""
    everywhere = names.intern_one(EVERYWHERE)
    by_broker: dict[tuple[int, int], list[int]] = {}
    for i in np.flatnonzero((meaning["what"] == BROKER) | (meaning["what"] == START)).tolist():
        where = int(records["cluster"][i]), int(records["broker"][i])
        by_broker.setdefault(where, []).append(i)
    found: list[tuple[Any, ...]] = []
    start = np.zeros(len(places) + 1, np.int64)
    base = tuple(params[name] for name in _SETTINGS)
    for j, (cluster, broker) in enumerate(places[:, :2].tolist()):
        levels = {(cluster, broker), (cluster, everywhere), (NONE, NONE)}
        rows = sorted(
            i for level in levels for i in by_broker.get(level, ())
            if meaning["what"][i] != START or level == (cluster, broker)
        )
        found += _turns_of(records, meaning, rows, broker, everywhere, base)
        start[j + 1] = len(found)
    return np.array(found, L.TURN), start


def _turns_of(
    records: Records, meaning: Array, rows: Sequence[int], broker: int, everywhere: int,
    base: tuple[int, ...],
) -> list[tuple[Any, ...]]:
    def turn(rank: int, at_ms: int, start: int, fresh: int) -> tuple[Any, ...]:
        samples, span_s, layers, expiration_ms = now
        return rank, at_ms, start, fresh, samples, span_s * 1000, layers, expiration_ms

    said = {broker: (0,) * len(base), everywhere: (0,) * len(base)}
    now = base
    found = [turn(-1, int(NULL), 0, 0)]
    for i in rows:
        m = meaning[i]
        is_start = int(m["what"] == START)
        if not is_start:
            name = int(m["name"])
            if name not in said:
                continue
            said[name] = tuple(int(m[field]) for field in _SETTINGS)
            before, now = now, tuple(
                own or every or otherwise for own, every, otherwise in
                zip(said[broker], said[everywhere], base, strict=True)
            )
            if now == before:
                continue
        found.append(turn(i, int(records["ts_wall_ms"][i]), is_start, int(m["fresh"])))
    return found
