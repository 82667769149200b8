"""State of one shard of `rate_limits`: its brokers, waiting records, policies, names; as bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from state.engine import codec
from state.engine.names import Names
from state.engine.records import FLAGS, SOURCE_COLUMNS, Records, empty
from state.rate_limits import store
from state.rate_limits.broker import Broker, Policy
from state.rate_limits.declaration import COLUMNS, NAME
from state.rate_limits.layout import NULL, Array
from state.rate_limits.limits import Source, full_topic_name
from state.rate_limits.store import NAME_FIELDS, PARTS
from state.rate_limits.world import LAYOUTS

VERSION = 3
NAME_COLUMNS = (
    "source_feed", "cluster", "broker", "cnx_id", "topic", "producer_name", "policy_json",
    "source_partition",
)
_DOCUMENT = np.dtype([("key", "<i8"), ("text", "<i8"), ("wall_ms", "<i8")])
_STAR = np.dtype(
    [("id", "<i8"), ("cluster", "<i8"), ("text", "<i8"), ("wall_ms", "<i8"), ("feed", "<i8"),
     ("seq", "<i8"), ("has_seq", "|i1")]
)
_APPLIED = np.dtype([("key", "<i8"), ("id", "<i8")])
_COMPACT_BELOW = 0.75
"""Names are renumbered when less than this share of them is in use."""


@dataclass(frozen=True)
class Star:
    """A policy for every broker of a cluster, by a number that only this shard knows."""

    id: int
    cluster: int
    policy: Policy
    feed: int
    seq: int | None


@lru_cache(maxsize=4096)
def _parsed(text: str) -> tuple[str, str, dict[str, Any]]:
    document = json.loads(text)
    scope, name = document["scope"], document["name"]
    if scope == "topic":
        name = full_topic_name(name)
    return scope, name, document.get("limits") or {}


def policy_of(names: Names, text: int, wall_ms: int) -> Policy:
    """The document behind a kept text."""
    scope, name, limits = _parsed(names.get(text))
    return Policy(scope, name, limits, text, wall_ms)


@dataclass
class Shard:
    """What one shard knows between two calls."""

    names: Names
    brokers: dict[tuple[int, int], Broker] = field(default_factory=dict)
    waiting: Records = field(default_factory=lambda: empty(COLUMNS))
    stars: list[Star] = field(default_factory=list)
    next_star: int = 0
    config: tuple[str, ...] = ()
    changed: dict[Source, str | None] = field(default_factory=dict)
    """Configured documents that differ from those of the last run; None = taken away."""

    def documents(self) -> dict[Source, Policy]:
        """The configured documents, as they hold before a key's first record."""
        found = {}
        for text in self.config:
            policy = policy_of(self.names, self.names.intern_one(text), int(NULL))
            found[policy.source] = policy
        return found


def new(config: Sequence[str]) -> Shard:
    """A shard that has seen nothing."""
    return Shard(Names(), config=tuple(config))


def read(data: bytes, config: Sequence[str]) -> Shard:
    """The shard behind its bytes; `config` are the documents configured now."""
    arrays = codec.decode(NAME, VERSION, data)
    shard = Shard(Names(arrays["names"], arrays["name_lengths"]), config=tuple(config))
    shard.next_star = int(arrays["next_star"][0])
    shard.waiting = Records.of({
        name: arrays[f"waiting.{name}"]
        for name in (*COLUMNS, *SOURCE_COLUMNS, *FLAGS, "ingest_ms")
    })
    for row in arrays["stars"]:
        shard.stars.append(
            Star(
                int(row["id"]), int(row["cluster"]),
                policy_of(shard.names, int(row["text"]), int(row["wall_ms"])), int(row["feed"]),
                int(row["seq"]) if row["has_seq"] else None,
            )
        )
    was = [shard.names.get(int(text)) for text in arrays["config"]]
    shard.changed = _differences(was, config)
    base = shard.documents()
    if shard.changed:
        kept = Shard(shard.names, config=tuple(was)).documents()
    else:
        kept = base
    at = dict.fromkeys(PARTS, 0)
    for i, sizes in enumerate(arrays["sizes"]):
        parts = {}
        for name, size in zip(PARTS, sizes, strict=True):
            stored = arrays[f"world.{name}"][at[name] : at[name] + size]
            at[name] += int(size)
            parts[name] = np.zeros(len(stored), LAYOUTS[name])
            for column in LAYOUTS[name].names or ():
                parts[name][column] = stored[column]
        documents = dict(kept)
        for row in arrays["documents"][arrays["documents"]["key"] == i]:
            policy = policy_of(shard.names, int(row["text"]), int(row["wall_ms"]))
            documents[policy.source] = policy
        broker = Broker(store.unpack(parts), shard.names, documents)
        applied = arrays["applied"]
        broker.applied = set(applied["id"][applied["key"] == i].tolist())
        shard.brokers[int(broker.key["cluster"]), int(broker.key["broker"])] = broker
    return shard


def _differences(was: Sequence[str], now: Sequence[str]) -> dict[Source, str | None]:
    before = {_parsed(text)[:2]: text for text in was}
    after = {_parsed(text)[:2]: text for text in now}
    changed: dict[Source, str | None] = {
        source: text for source, text in after.items() if before.get(source) != text
    }
    changed |= {source: None for source in before if source not in after}
    return changed


def write(shard: Shard) -> bytes:
    """The bytes of a shard."""
    brokers = list(shard.brokers.values())
    packed = [store.pack(b.world) for b in brokers]
    documents = [
        (i, policy.text, policy.wall_ms)
        for i, b in enumerate(brokers)
        for policy in b.documents.values()
        if policy.wall_ms != NULL
    ]
    stars = [
        (s.id, s.cluster, s.policy.text, s.policy.wall_ms, s.feed, s.seq or 0,
         s.seq is not None)
        for s in shard.stars
    ]
    applied = [(i, star) for i, b in enumerate(brokers) for star in sorted(b.applied)]
    arrays: dict[str, Array] = {
        "config": np.array([shard.names.intern_one(t) for t in shard.config], np.int64),
        "documents": np.array(documents, _DOCUMENT),
        "stars": np.array(stars, _STAR),
        "applied": np.array(applied, _APPLIED),
        "next_star": np.array([shard.next_star], np.int64),
        "sizes": np.array(
            [[len(parts[name]) for name in PARTS] for parts in packed], np.int64
        ).reshape(-1, len(PARTS)),
    }
    for name in PARTS:
        arrays[f"world.{name}"] = (
            np.concatenate([parts[name] for parts in packed])
            if packed
            else np.zeros(0, LAYOUTS[name])
        )
    arrays |= {
        f"waiting.{name}": column.astype(np.int8) if name in FLAGS else column
        for name, column in shard.waiting.items()
    }
    names = _compact(shard.names, arrays)
    arrays["names"], arrays["name_lengths"] = names.arrays()
    return codec.encode(NAME, VERSION, arrays)


def _compact(names: Names, arrays: Mapping[str, Array]) -> Names:
    """Leave out names that nothing refers to, once they are many."""
    columns = [arrays["config"], arrays["documents"]["text"]]
    columns += [arrays["stars"][f] for f in ("cluster", "text", "feed")]
    columns += [arrays[f"waiting.{name}"] for name in NAME_COLUMNS]
    columns += [arrays[f"world.{part}"][f] for part, fields in NAME_FIELDS.items() for f in fields]
    used = np.zeros(len(names) + 1, bool)
    for column in columns:
        used[column] = True
    used = used[:-1]
    if used.sum() >= _COMPACT_BELOW * len(names):
        return names
    smaller, number = names.compact(used)
    for column in columns:
        column[...] = number[column]
    return smaller
