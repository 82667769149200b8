"""State of one shard of `entry_cache`: its brokers, waiting records, policies, names; as bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from state.engine import codec
from state.engine.names import Names
from state.engine.records import FLAGS, SOURCE_COLUMNS, Records, empty
from state.entry_cache import store
from state.entry_cache.broker import Broker
from state.entry_cache.declaration import COLUMNS, NAME
from state.entry_cache.layout import NULL, Array
from state.entry_cache.settings import Variant
from state.entry_cache.store import LAYOUTS, NAME_FIELDS, PARTS
from state.entry_cache.world import blank, new_world
from state.rate_limits.broker import Policy
from state.rate_limits.limits import Source
from state.rate_limits.shard import Star, policy_of

VERSION = 2
NAME_COLUMNS = (
    "source_feed", "cluster", "broker", "cnx_id", "topic", "producer_name", "uuid", "subscription",
    "sub_type", "consumer", "mark_delete", "read_pos", "policy_json", "source_partition",
)
_DOCUMENT = np.dtype([("key", "<i8"), ("text", "<i8"), ("wall_ms", "<i8"), ("fresh", "<i8")])
_STAR = np.dtype(
    [("id", "<i8"), ("cluster", "<i8"), ("text", "<i8"), ("wall_ms", "<i8"), ("feed", "<i8"),
     ("seq", "<i8"), ("has_seq", "|i1")]
)
_APPLIED = np.dtype([("key", "<i8"), ("id", "<i8")])
_COMPACT_BELOW = 0.75
"""Names are renumbered when less than this share of them is in use."""


@dataclass
class Shard:
    """What one shard knows between two calls."""

    names: Names
    variants: Sequence[Variant]
    brokers: dict[tuple[int, int], Broker] = field(default_factory=dict)
    waiting: Records = field(default_factory=lambda: empty(COLUMNS))
    stars: list[Star] = field(default_factory=list)
    next_star: int = 0
    config: tuple[str, ...] = ()
    changed: dict[Source, str | None] = field(default_factory=dict)
    """Configured documents that differ from those of the last run; None = taken away."""
    make_broker: type[Broker] = Broker

    def documents(self) -> dict[Source, Policy]:
        """The configured documents, as they hold before a key's first record."""
        found = {}
        for text in self.config:
            policy = policy_of(self.names, self.names.intern_one(text), int(NULL))
            found[policy.source] = policy
        return found

    def new_broker(self, cluster: int, broker: int) -> Broker:
        """A key that nothing is known of."""
        w = new_world(cluster, broker, len(self.variants))
        w.variants["given"] = [self.names.intern_one(v.text) for v in self.variants]
        return self.make_broker(w, self.names, self.documents(), self.variants)


def new(
    config: Sequence[str], variants: Sequence[Variant], make_broker: type[Broker] = Broker
) -> Shard:
    """A shard that has seen nothing."""
    return Shard(Names(), variants, config=tuple(config), make_broker=make_broker)


def read(
    data: bytes, config: Sequence[str], variants: Sequence[Variant],
    make_broker: type[Broker] = Broker,
) -> Shard:
    """The shard behind its bytes; `config` are the documents configured now, `variants` the
    caches wanted now: one that the state does not know begins empty."""
    arrays = codec.decode(NAME, VERSION, data)
    names = Names(arrays["names"], arrays["name_lengths"])
    shard = Shard(names, variants, config=tuple(config), make_broker=make_broker)
    shard.next_star = int(arrays["next_star"][0])
    shard.waiting = Records.of({
        name: arrays[f"waiting.{name}"]
        for name in (*COLUMNS, *SOURCE_COLUMNS, *FLAGS, "ingest_ms")
    })
    for row in arrays["stars"]:
        shard.stars.append(
            Star(
                int(row["id"]), int(row["cluster"]),
                policy_of(names, int(row["text"]), int(row["wall_ms"])), int(row["feed"]),
                int(row["seq"]) if row["has_seq"] else None,
            )
        )
    was = [names.get(int(text)) for text in arrays["config"]]
    shard.changed = _differences(was, config)
    kept = Shard(names, variants, config=tuple(was)).documents()
    at = dict.fromkeys(PARTS, 0)
    for i, sizes in enumerate(arrays["sizes"]):
        parts = {}
        for name, size in zip(PARTS, sizes, strict=True):
            stored = arrays[f"world.{name}"][at[name] : at[name] + size]
            at[name] += int(size)
            parts[name] = np.zeros(len(stored), LAYOUTS[name])
            for column in LAYOUTS[name].names or ():
                parts[name][column] = stored[column]
        broker = _broker(shard, parts, dict(kept))
        for row in arrays["documents"][arrays["documents"]["key"] == i]:
            policy = policy_of(names, int(row["text"]), int(row["wall_ms"]))
            broker.documents[policy.source] = policy
            if row["fresh"]:
                broker.fresh.add(policy.source)
        applied = arrays["applied"]
        broker.applied = set(applied["id"][applied["key"] == i].tolist())
        _continue(broker)
        shard.brokers[int(broker.key["cluster"]), int(broker.key["broker"])] = broker
    return shard


def _broker(shard: Shard, parts: dict[str, Array], documents: dict[Source, Policy]) -> Broker:
    """The key behind its arrays; each cache goes on as the stored one that was given the same."""
    given = parts["variants"]["given"].tolist()
    source = np.full(len(shard.variants), -1, np.int64)
    variants = blank("variants", len(source))
    for i, variant in enumerate(shard.variants):
        text = shard.names.intern_one(variant.text)
        if text in given:
            source[i] = given.index(text)
            given[source[i]] = None
            variants[i] = parts["variants"][source[i]]
    w = store.unpack(parts, source, variants)
    return shard.make_broker(w, shard.names, documents, shard.variants)


def _continue(broker: Broker) -> None:
    """Settings may have changed since the last run; caches that it did not have begin."""
    broker.begin_caches(broker.world.variants["given"] < 0)
    broker.key["next_ns"] = NULL


def _differences(was: Sequence[str], now: Sequence[str]) -> dict[Source, str | None]:
    def by_source(texts: Sequence[str]) -> dict[Source, str]:
        documents = ((json.loads(text), text) for text in texts)
        return {(d["scope"], d["name"]): text for d, text in documents if d["scope"] == "broker"}

    before, after = by_source(was), by_source(now)
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
        (i, policy.text, policy.wall_ms, source in b.fresh)
        for i, b in enumerate(brokers)
        for source, policy in b.documents.items()
        if policy.wall_ms != NULL or source in b.fresh
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
