"""One broker: judges its records in order, applies its policies and collects its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.engine import wall
from state.engine.clocks import window_clock
from state.engine.documents import Policy, Source
from state.engine.feed import fed
from state.engine.key import Key, Row
from state.engine.names import Names
from state.engine.records import Records, among
from state.entry_cache import flow
from state.entry_cache import layout as L
from state.entry_cache.layout import NULL, Array, CacheRecord, Out, Record, World
from state.entry_cache.settings import (
    Documents,
    Variant,
    documents_of,
    longest_life,
    settings_of,
)
from state.entry_cache.texts import read_positions
from state.entry_cache.world import (
    grow,
    new_out,
    with_cursors,
    with_far,
    with_topics,
)
from state.events import EVERY_BROKER

CREATES_CURSOR = among(flow.CURSOR_STATE, flow.REPLAY_QUEUED)
"""By kind of record whether it brings a subscription."""


@dataclass
class Broker(Key):
    """State and rows of one key."""

    world: World
    names: Names
    documents: dict[Source, Policy]
    variants: Sequence[Variant]
    out: Out = field(default_factory=new_out)
    applied: set[int] = field(default_factory=set)
    fresh: set[Source] = field(default_factory=set)
    """Documents that have come on the stream since the broker started."""

    # -- settings ----------------------------------------------------------------------------

    def _documents(self) -> Documents:
        sources = (("broker", self.names.get(int(self.key["broker"]))), ("broker", EVERY_BROKER))
        own, every = (
            (self.documents[s].document if s in self.documents else "", s in self.fresh)
            for s in sources
        )
        return documents_of(own, every)

    def resolve(self, begins: Array | None = None) -> None:
        """Apply the settings in force to the caches; new ones and those that have had no entry yet
        get their policy: a feed sends the settings of a broker after its start.
        """
        documents = self._documents()
        for i, (variant, cache) in enumerate(zip(self.variants, self.world.variants, strict=True)):
            policy = int(cache["policy"])
            if (begins is not None and begins[i]) or not cache["filled"]:
                policy = variant.policy_at_start(documents)
            for name, value in settings_of(variant, policy, documents).items():
                cache[name] = value
            cache["idle_until_ns"] = NULL
        if begins is not None:
            self.world = with_far(self.world)

    def begin_caches(self, begins: Array) -> None:
        """Add new caches to a known key: empty from its clock on."""
        k, caches = self.key, self.world.variants
        self.resolve(begins)
        now = max(int(k["clock_ns"]) if k["has_clock"] else int(k["last_ns"]), int(k["last_ns"]))
        caches["passed_ns"][begins] = now
        for i in np.flatnonzero(begins).tolist():
            caches[i]["given"] = self.names.intern_one(self.variants[i].text)

    def apply(self, policy: Policy, now: int, wall: int) -> None:
        """Apply a document: it replaces the one of its scope and name, unless that is newer."""
        if policy.scope != "broker":
            return
        old = self.documents.get(policy.source)
        if old is not None and policy.wall_ms != NULL and policy.wall_ms < old.wall_ms:
            return
        self.documents = {**self.documents, policy.source: policy}
        if not self.key["any"]:
            return
        self.fresh.add(policy.source)
        caches = self.world.variants
        caches["passed_ns"] = np.maximum(caches["passed_ns"], now)
        self.resolve()
        self.key["next_ns"] = NULL

    def reconfigured(self, source: Source) -> None:
        """A configured document of this scope and name has changed and is applied."""
        self.fresh.discard(source)
        self.resolve()

    def kept_documents(self) -> list[Row]:
        """Text and time of the key's own documents, and whether each is fresh."""
        return [
            (p.text, p.wall_ms, int(source in self.fresh))
            for source, p in self.documents.items()
            if p.wall_ms != NULL or source in self.fresh
        ]

    # -- records -----------------------------------------------------------------------------

    def feed(self, rows: Records) -> Array:
        """Records as the kernel reads them; topics and cursors that they bring get their place."""
        topic = self._topics(rows["topic"])
        cursor = self._cursors(topic, rows["subscription"], CREATES_CURSOR[rows["event_type"]])
        read, mark = self._positions(rows["read_pos"]), self._positions(rows["mark_delete"])
        return fed(
            CacheRecord,
            rows,
            topic=topic,
            cursor=cursor,
            active=rows["active"] != 0,
            told=rows["active"] >= 0,
            durable=rows["durable"] != 0,
            has_read=read[0],
            read_ledger=read[1],
            read_entry=read[2],
            has_mark=mark[0],
            mark_ledger=mark[1],
            mark_entry=mark[2],
            next_read=np.full(len(topic), L.NEVER_READ),
        )

    def _topics(self, ids: Array) -> Array:
        """Places of topics, new ones at the end; the order of all by name."""
        known = self.world.topics["name"]
        place = np.full(len(self.names) + 1, -1, np.int64)
        place[known] = np.arange(len(known))
        fresh = np.unique(ids[(ids >= 0) & (place[ids] < 0)])
        if len(fresh):
            place[fresh] = len(known) + np.arange(len(fresh))
            w = with_topics(self.world, fresh)
            texts = self.names.lookup(w.topics["name"]).cast(pa.binary())
            by_rank = np.ascontiguousarray(pc.array_sort_indices(texts).to_numpy(), np.int64)
            w.topics["rank"][by_rank] = np.arange(len(by_rank))
            self.world = w._replace(by_rank=by_rank)
        return place[ids]

    def _cursors(self, topic: Array, names: Array, creates: Array) -> Array:
        """Places of subscriptions, -1 for unknown ones that no record brings."""
        picked = np.flatnonzero((topic >= 0) & (names >= 0))
        found = np.full(len(topic), -1, np.int64)
        if not len(picked):
            return found
        cursors = self.world.cursors
        known = np.zeros((len(cursors) + len(picked), 3), np.int64)
        known[: len(cursors), 0], known[: len(cursors), 1] = cursors["topic"], cursors["name"]
        places = np.empty(len(picked), np.int64)
        count = wall.intern_tuples(
            known,
            len(cursors),
            topic[picked],
            names[picked],
            np.zeros(len(picked), np.int64),
            creates[picked],
            places,
        )
        if count > len(cursors):
            fresh = known[len(cursors) : count]
            self.world = with_cursors(self.world, fresh[:, 0], fresh[:, 1])
        found[picked] = places
        return found

    def _positions(self, ids: Array) -> Array:
        """Positions as written, shape (3, records): whether there is one, ledger and entry."""
        found = np.zeros((3, len(ids)), np.int64)
        read_positions(*self.names.utf8(), ids, found)
        return found

    def judge(
        self, f: Array, start: int, end: int, rows: Records, policies: dict[int, Policy]
    ) -> None:
        """Judge records [start, end) of a feed; `policies` by record are those on the stream."""
        if start < end and not self.key["any"]:
            self._begin(*_when(f[start]))
        at = start
        while at < end:
            status, at = flow.run(self.world, self.out, f, at, end)
            if status == flow.ROOM:
                self.world, self.out = grow(self.world, self.out)
            elif status == flow.ASK:
                now, wall_ms, source = _when(f[at])
                if f[at]["event_type"] == flow.BROKER_STARTED:
                    self._restart(now, wall_ms, source)
                    self.key["run_wall_ms"], self.key["has_run"] = wall_ms, 1
                    self.key["run_seq"] = rows["seq"][at]
                    self.key["run_has_seq"] = rows["has_seq"][at]
                elif f[at]["event_type"] == flow.GAP:
                    self._lose_sight(now)
                elif at in policies:
                    self.apply(policies[at], now, wall_ms)
                at += 1

    # -- time --------------------------------------------------------------------------------

    def advance(self, clock: int, next_mono: int | None, next_wall: int) -> None:
        """Move to a moment before the key's next record: passes and windows up to it."""
        while (
            flow.advance(
                self.world, self.out, clock, next_mono or 0, int(next_mono is not None), next_wall
            )
            == flow.ROOM
        ):
            self.world, self.out = grow(self.world, self.out)

    def _begin(self, now: int, wall_ms: int, feed: int) -> None:
        """The key's first record."""
        k = self.key
        clock = int(window_clock(now, wall_ms))
        k["any"], k["window_start_ms"] = 1, clock // int(k["window_ms"]) * int(k["window_ms"])
        self._begin_run(now, wall_ms, feed)

    def _restart(self, now: int, wall_ms: int, feed: int) -> None:
        before = max(self.mono_at(wall_ms), int(self.key["last_ns"]))
        self.advance(before, None, wall_ms)
        self._begin_run(now, wall_ms, feed)

    def _lose_sight(self, now: int) -> None:
        """Records up to `now` are missing: the contents of the caches are unknown until every entry
        that they may have has reached its longest life. The run and its settings continue.
        """
        k, caches = self.key, self.world.variants
        started = int(k["started_ns"])
        flow.begin_run(self.world, now)
        k["started_ns"] = started
        life = max(longest_life(cache) for cache in caches) if len(caches) else 0
        k["blind"], k["blind_until_ns"] = 1, min(now + life, int(L.LARGEST))

    def _begin_run(self, now: int, wall_ms: int, feed: int) -> None:
        k = self.key
        k["last_ns"], k["last_wall_ms"], k["last_feed"] = now, wall_ms, feed
        self.fresh = set()
        flow.begin_run(self.world, now)
        self.world.variants["filled"] = 0
        self.resolve(np.ones(len(self.variants), bool))


def _when(record: Record) -> tuple[int, int, int]:
    """Monotonic and wall time of a record, and its feed."""
    return int(record["ts_mono_ns"]), int(record["ts_wall_ms"]), int(record["source_feed"])
