"""The state of one shard whose keys are brokers, each with a world of its own: struct arrays by
name.

A shard also has waiting records, documents of its keys, documents for every broker (stars), and the
documents configured in its last run. A key is opened when it has something to do; the arrays of the
others stay in their stored form.

Worked example. The last run was configured with x at 10/s and has kept the key b1, which took y at
5/s of time 2000 from the stream. This run begins with x at 20/s, and a version of the configuration
sets x to 30/s from 5000 on:

    open(b1)   x 10/s, y 5/s: a key continues with what it had
    changed    x 20/s, which `mono` applies to b1 at its clock
    open(b2)   x 20/s: a new key begins with what is configured now
    stars      x 30/s of 5000, for every cluster: each key applies it at that time (see `play`)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from state.engine.clocks import NS_PER_MS
from state.engine.documents import (
    ClusterPolicy,
    Configured,
    Policy,
    Source,
    changes,
    first_and_number,
    gone,
    in_force,
    policy_of,
)
from state.engine.kernel import NULL, Array
from state.engine.key import Closed, Key, Pair, Row
from state.engine.names import NONE, Names
from state.engine.reach import Reach
from state.engine.records import Records
from state.engine.store import Plain, RecordSet, Store, Struct

STAR = np.dtype(
    [
        ("id", "<i8"),
        ("cluster", "<i8"),
        ("text", "<i8"),
        ("wall_ms", "<i8"),
        ("feed", "<i8"),
        ("seq", "<i8"),
        ("has_seq", "|i1"),
    ]
)
_APPLIED = np.dtype([("key", "<i8"), ("id", "<i8")])


EVERY_CLUSTER = NONE
"""Cluster of a configured star; its feed is none as well."""


def versions_as_cluster_policies(
    config: Configured, number: int, first_id: int, names: Names
) -> list[ClusterPolicy]:
    """Changes of the configuration after a version, as policies of all brokers at their times."""
    found: list[ClusterPolicy] = []
    for version in config.after(number):
        for source, text in version.changed.items():
            written = names.intern_one(gone(source) if text is None else text)
            policy = policy_of(names, written, version.since_ms)
            found.append(ClusterPolicy(first_id + len(found), EVERY_CLUSTER, policy, NONE, None))
    return found


def cluster_policy_rows(stars: Sequence[ClusterPolicy]) -> Array:
    """Stars in their stored form."""
    return np.array(
        [
            (
                s.id,
                s.cluster,
                s.policy.text,
                s.policy.wall_ms,
                s.feed,
                s.seq or 0,
                s.seq is not None,
            )
            for s in stars
        ],
        STAR,
    )


KEYS = "world.key"


class Form:
    """What a job stores of a shard."""

    def __init__(
        self,
        job: str,
        version: int,
        columns: tuple[str, ...],
        layouts: Mapping[str, np.dtype[Any]],
        name_fields: Mapping[str, tuple[str, ...]],
        document: Sequence[str] = (),
    ) -> None:
        """`columns` are those of records. `layouts` has the arrays of a world, `key`
        first, and as `document` the fields of a document besides its text and time.
        """
        self.columns, self.parts = columns, tuple(layouts)
        fields = ("key", "text", "wall_ms", *document)
        self.document = np.dtype([(name, "<i8") for name in fields])
        self.store = Store(
            job,
            version,
            Plain("config", names=True),
            Struct("documents", self.document, ("text",)),
            Struct("stars", STAR, ("cluster", "text", "feed")),
            Struct("applied", _APPLIED),
            Plain("next_star"),
            Plain("sizes"),
            *(
                Struct(f"world.{name}", kind, name_fields.get(name, ()))
                for name, kind in layouts.items()
            ),
            RecordSet("waiting", columns),
        )


K = TypeVar("K", bound=Key)


class Shard(ABC, Generic[K]):
    """The state of one shard between two calls."""

    form: Form
    scopes: frozenset[str] | None = None
    """Scopes of documents that matter when the configuration changes; None = all."""
    kinds: Array | None = None
    """By kind of record, whether the job reads it; None = all."""

    def __init__(
        self,
        config: Sequence[str],
        parameters: Mapping[str, int] | None = None,
        data: bytes | None = None,
    ) -> None:
        """A shard from its bytes, or a new one; `config` are the documents configured now,
        `parameters` fields that every key gets.
        """
        store = self.form.store
        configured = config if isinstance(config, Configured) else Configured(config)
        self.parameters: Mapping[str, int] = parameters or {}
        if data:
            found, self.names = store.read(data)
        else:
            found, self.names = store.blank(), Names()
        names = self.names
        self.waiting: Records = found["waiting"]
        self.next_star = int(found["next_star"][0]) if data else 0
        self.stars = [
            ClusterPolicy(
                id_, cluster, policy_of(names, text, wall), feed, seq if has_seq else None
            )
            for id_, cluster, text, wall, feed, seq, has_seq in found["stars"].tolist()
        ]
        numbers = found["config"].tolist()
        was, number = first_and_number([names.get(number) for number in numbers])
        kept = in_force(was, numbers[: len(was)], int(NULL))
        self.changed = changes(was, configured, self.scopes) if data else {}
        """Configured documents that differ from those of the last run; None = taken away."""
        self._before = self._documents = kept
        if was != configured:
            texts = [names.intern_one(text) for text in configured]
            self._documents = in_force(configured, texts, int(NULL))
        if was != configured or number != configured.number:
            numbers = [names.intern_one(text) for text in configured.kept]
            more = versions_as_cluster_policies(configured, number, self.next_star, names)
            self.stars += more
            self.next_star += len(more)
        self._config = np.array(numbers, np.int64)
        self.keys: dict[Pair, K | Closed] = self._closed(found) if data else {}
        self._read, self._scalars = list(self.keys), found[KEYS]

    def _closed(self, found: dict[str, Any]) -> dict[Pair, K | Closed]:
        """The keys in their stored form, in order."""
        documents: dict[int, list[Row]] = {}
        for key, *row in found["documents"].tolist():
            documents.setdefault(key, []).append(tuple(row))
        applied: dict[int, set[int]] = {}
        for key, star in found["applied"].tolist():
            applied.setdefault(key, set()).add(star)
        ends = np.cumsum(found["sizes"], axis=0)
        ranges = zip((ends - found["sizes"]).tolist(), ends.tolist(), strict=True)
        arrays = [(name, found[f"world.{name}"]) for name in self.form.parts]
        key = found[KEYS]
        pairs = zip(key["cluster"].tolist(), key["broker"].tolist(), strict=True)
        return {
            pair: Closed(
                {
                    name: array[start:end]
                    for (name, array), start, end in zip(arrays, starts, stops, strict=True)
                },
                documents.get(i, []),
                applied.get(i, set()),
            )
            for i, (pair, (starts, stops)) in enumerate(zip(pairs, ranges, strict=True))
        }

    # -- keys --------------------------------------------------------------------------------

    @abstractmethod
    def new_key(self, pair: Pair, documents: dict[Source, Policy]) -> K:
        """A new key."""

    @abstractmethod
    def read_key(
        self, parts: dict[str, Array], documents: dict[Source, Policy], more: dict[Source, Row]
    ) -> K:
        """The key from its arrays; `more` has the further fields of its own documents."""

    @abstractmethod
    def pack(self, world: Any) -> dict[str, Array]:
        """The arrays of a world to store."""

    def prepare(self, b: K) -> None:
        """Prepare a key that has its parameters, before it judges anything."""
        return None

    @abstractmethod
    def due_ms(self, b: K | Closed) -> Iterator[int]:
        """Wall times of the stream at which a key has something to do without records."""

    @abstractmethod
    def rows(self, b: K) -> dict[str, pa.Table]:
        """Output rows of a key since it was opened, by table."""

    @property
    def may_rest(self) -> bool:
        """Whether keys without anything to do may stay closed."""
        return True

    def open(self, pair: Pair) -> K:
        """The key of a pair; a new one if it is not stored."""
        found = self.keys.get(pair)
        if found is None:
            return self.new_key(pair, dict(self._documents))
        if not isinstance(found, Closed):
            return found
        documents, more = dict(self._before), {}
        for text, wall, *rest in found.documents:
            policy = policy_of(self.names, text, wall)
            documents[policy.source], more[policy.source] = policy, tuple(rest)
        key = self.read_key(found.parts, documents, more)
        key.applied = found.applied
        self.keys[pair] = key
        return key

    @property
    def brokers(self) -> dict[Pair, K]:
        """All keys, opened."""
        return {pair: self.open(pair) for pair in self.keys}

    def resting(self, reach: Reach, idle_advance_ms: int) -> set[Pair]:
        """Keys that have nothing to do unless a record or a star comes: their parameters are
        unchanged, and they are not moved beyond their clocks.
        """
        k = self._scalars
        rest = np.full(len(k), self.may_rest)
        for name, value in self.parameters.items():
            rest &= k[name] == value
        moved = reach.moved(k, "latest_wall_ms", idle_advance_ms)
        # in floating point: one more key may be opened than must be
        ahead = (moved.astype(float) - k["last_wall_ms"]) * NS_PER_MS + k["last_ns"]
        moves = (k["has_clock"] == 0) | (ahead > k["clock_ns"] - float(NS_PER_MS))
        known = (k["any"] != 0) & (k["last_wall_ms"] != NULL)
        rest &= ~(moves & known & (moved > 0) & (k["last_wall_ms"] <= moved))
        return {self._read[i] for i in np.flatnonzero(rest)}

    # -- bytes -------------------------------------------------------------------------------

    def write(self) -> bytes:
        """The bytes of the shard."""
        kept = [
            b
            if isinstance(b, Closed)
            else Closed(self.pack(b.world), b.kept_documents(), b.applied)
            for b in self.keys.values()
        ]
        if kept:
            values: dict[str, Any] = {
                f"world.{name}": [b.parts[name] for b in kept] for name in self.form.parts
            }
        else:
            values = self.form.store.blank()
        documents = [(i, *row) for i, b in enumerate(kept) for row in b.documents]
        applied = [(i, star) for i, b in enumerate(kept) for star in sorted(b.applied)]
        sizes = [[len(b.parts[name]) for name in self.form.parts] for b in kept]
        return self.form.store.write(
            values
            | {
                "config": self._config,
                "documents": np.array(documents, self.form.document),
                "stars": cluster_policy_rows(self.stars),
                "applied": np.array(applied, _APPLIED),
                "next_star": np.array([self.next_star], np.int64),
                "sizes": np.array(sizes, np.int64).reshape(-1, len(self.form.parts)),
                "waiting": self.waiting,
            },
            self.names,
        )
