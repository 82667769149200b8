"""Shared records of users: their bounds, settings of brokers, and broker starts.

Every policy holds for all keys of the broker that it came from. See `state.engine.wall_policies`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from state.engine import globs, wall, wall_policies
from state.engine.broker_changes import places as places_of
from state.engine.documents import parsed
from state.engine.names import NONE, Names
from state.engine.records import Array, Records
from state.engine.wall_policies import Document, Settings
from state.events import EVERY_BROKER
from state.producer_ids import layout as L
from state.producer_ids.sequence import SEQUENCE

DEFAULT_USER, NAMED = globs.DEFAULT_USER, globs.name_text(globs.DEFAULT_USER)
USER, BROKER, USERS = 1, 2, 3
_OFF = -1.0
"""The bound of a pattern that sets none."""
SAMPLES = "producer.id.quota.window.num"
SPAN_S = "producer.id.quota.window.size.seconds"
LAYERS = "producer.id.quota.window.count"
EXPIRATION_MS = "producer.id.expiration.ms"
BROKER_KEYS: dict[str, int] = {
    SAMPLES: 1_000_000,
    SPAN_S: 2**31 - 1,
    LAYERS: 1_000_000,
    EXPIRATION_MS: 2**62,
}
"""Largest value of each key; larger ones are reduced to it, so that products of two stay within 64
bits.
"""

MEANING = np.dtype(
    [
        ("what", "<i8"),
        ("name", "<i8"),
        ("bound", "<f8"),
        ("samples", "<i8"),
        ("span_s", "<i8"),
        ("layers", "<i8"),
        ("expiration_ms", "<i8"),
        ("fresh", "|u1"),
    ],
    align=True,
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
def _parsed(text: str) -> Document | None:
    """The content of a document; None for one that this job does not use."""
    scope, name, limits = parsed(text)
    if scope in ("user", globs.USERS):
        bound = limits.get("producer_ids_rate")
        if scope == globs.USERS:
            # one that is off overrides those of weaker patterns
            value = float("nan") if bound is None else max(float(bound), _OFF)
            return USERS, name, (value, *(0,) * len(BROKER_KEYS))
        value = float("nan") if bound is None or bound < 0 else float(bound)
        return USER, name, (value, *(0,) * len(BROKER_KEYS))
    if scope != "broker":
        return None
    values = [int(min(max(limits.get(k) or 0, 0), most)) for k, most in BROKER_KEYS.items()]
    return BROKER, name, (float("nan"), *values)


class Policies(wall_policies.SharedRecords):
    """Policies and broker starts as this job reads them."""

    sequence = SEQUENCE
    meaning = MEANING
    broker = BROKER
    settings = _SETTINGS
    unset = 0
    patterns = {USERS: globs.USERS}
    by_origin = True
    start = (float("nan"),)
    turn = L.TURN

    def parsed(self, text: str) -> Document | None:
        """The content of a document; None for one that this job does not use."""
        return _parsed(text)

    def sets(self, meaning: Array) -> Array:
        """Which documents set something."""
        found = ~np.isnan(meaning["bound"])
        for field in _SETTINGS:
            found |= meaning[field] > 0
        return found

    def in_force(self, settings: Settings) -> tuple[Any, ...]:
        """The rest of a `layout.TURN`."""
        samples, span_s, layers, expiration_ms = settings
        return samples, span_s * 1000, layers, expiration_ms


POLICIES = Policies()


# -- what the kernel takes -------------------------------------------------------------------


def timeline(
    records: Records, meaning: Array, keys: Array, names: Names, params: Mapping[str, int]
) -> Timeline:
    """The turns and documents of the brokers and users of a shard's keys."""
    places, place = places_of(keys["cluster"], keys["broker"])
    base = tuple(params[name] for name in _SETTINGS)
    turns, start = POLICIES.turns(records, meaning, places, names, base)
    users = np.flatnonzero(meaning["what"] == USER)
    default = names.intern_one(DEFAULT_USER)
    everywhere = names.intern_one(EVERY_BROKER)
    known, count, member = _grouped(records, meaning, users)
    order = np.argsort(member, kind="stable")
    groups = np.searchsorted(member[order], np.arange(count + 1))
    none = np.full(len(places), default, np.int64)
    defaults = _levels(known, count, places[:, 0], places[:, 1], none, everywhere)
    if count and bool((meaning["name"][users] != default).any()):
        named = names.intern_one(NAMED)
        user = np.where(
            keys["user"] == default, named, np.where(keys["user"] == named, NONE, keys["user"])
        )
        own = _levels(known, count, keys["cluster"], keys["broker"], user, everywhere)
    else:
        own = np.full((len(keys), 3), -1, np.int64)
    rank, groups = users[order], groups.astype(np.int64)
    bound = np.ascontiguousarray(meaning["bound"][rank])
    many = wall_policies.Many(POLICIES, meaning, names, groups, rank)
    if many:
        many.extend(own, "user", keys["user"])
        groups, added = many.together()
        rank = np.append(rank, [at for at, _ in added]).astype(np.int64)
        bound = np.append(bound, [_overlaid(members, meaning) for _, members in added])
    return Timeline(
        turns,
        start,
        place,
        own,
        defaults,
        groups,
        rank,
        bound,
        np.ascontiguousarray(records["ts_wall_ms"]),
    )


def _overlaid(members: tuple[int, ...], meaning: Array) -> float:
    """The bound that the strongest of some documents sets; NaN without one."""
    bounds = [float(meaning["bound"][at]) for at in members]
    said = [bound for bound in bounds if not np.isnan(bound)]
    return said[-1] if said and said[-1] > _OFF else float("nan")


def _grouped(records: Records, meaning: Array, rows: Array) -> tuple[Array, int, Array]:
    """Groups (cluster, broker, name) of documents, how many, and that of each row."""
    n = len(rows)
    known, member = np.zeros((n, 3), np.int64), np.empty(n, np.int64)
    count = wall.intern_tuples(
        known,
        0,
        records["cluster"][rows],
        records["broker"][rows],
        np.ascontiguousarray(meaning["name"][rows]),
        np.ones(n, bool),
        member,
    )
    return known, count, member


def _levels(
    known: Array, count: int, cluster: Array, broker: Array, name: Array, everywhere: int
) -> Array:
    """Groups of a name: of its broker, of all brokers of the cluster, of the configuration."""
    n = len(name)
    found = np.full((n, 3), -1, np.int64)
    none = np.full(n, NONE, np.int64)
    for i, (c, b) in enumerate(
        ((cluster, broker), (cluster, np.full(n, everywhere, np.int64)), (none, none))
    ):
        column = np.empty(n, np.int64)
        wall.intern_tuples(
            known[:count],
            count,
            np.ascontiguousarray(c, np.int64),
            np.ascontiguousarray(b, np.int64),
            np.ascontiguousarray(name, np.int64),
            np.zeros(n, bool),
            column,
        )
        found[:, i] = column
    return found
