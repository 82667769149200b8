"""The stateful operator `entry_cache`: a broker's cache of entries (PIP-430).

Key: (cluster, broker). Clock: monotonic. State: cached entries, cursors, what is queued for replay,
waiting records, policies. Timers: eviction passes and window ends, driven by event time. Tables:
`cache_stats`, and if asked for `cache_evictions` and `cache_reads`; its late or repeated records
for `quarantine`.

Several caches (policy, size and settings) are judged side by side, each with its own entries; they
share cursors and everything else that does not depend on what is cached. Memory: at most 60 bytes
of state per cached entry and cache, 80 to 170 while a batch is judged (where neighbours are cached;
a page of 32 positions takes 300).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from state.engine.job import Step
from state.engine.records import read_blobs, take
from state.engine.refused import Refused
from state.entry_cache import flow, rows
from state.entry_cache import shard as shards
from state.entry_cache.admission import Admission
from state.entry_cache.broker import Broker
from state.entry_cache.declaration import COLUMNS, NAME
from state.entry_cache.layout import LARGEST, NULL
from state.entry_cache.passes import next_effect
from state.entry_cache.settings import NS_PER_MS, ONLINE, Variant
from state.entry_cache.shard import Shard

READ = (
    flow.BROKER_STARTED, flow.ENTRY_ADDED, flow.DISPATCH, flow.ENTRY_READ, flow.ENTRY_RELEASED,
    flow.REPLAY_QUEUED, flow.ENTRY_INVALIDATED, flow.CURSOR_STATE, flow.CURSOR_DELETED,
    flow.LEDGER_DELETED, flow.POLICY,
)
"""Kinds of this job; others are left out before they could move a clock."""
RELEASE_EVENTS = ("dispatch", "entry_released")


class _Keys(Admission):
    """Keys with the parameters of this run."""

    parameters: Mapping[str, int]

    def prepare(self, b: Broker) -> Broker:
        for name, value in self.parameters.items():
            b.key[name] = value
        return b


class EntryCache:
    """See the module; one instance serves all shards and keeps nothing between calls."""

    name = NAME
    version = shards.VERSION
    policies: tuple[str, ...] = ONLINE
    """What the parameter `policy` may name."""
    make_broker = Broker

    def __init__(self, params: Mapping[str, Any], policies: Sequence[str] = ()) -> None:
        """`params` are the job's resolved parameters, `policies` the configured documents as
        JSON."""
        self._lateness_ns = int(params["allowed_lateness_ms"]) * NS_PER_MS
        self._idle_advance_ms = int(params["idle_advance_ms"])
        extra = params["extra_outputs"]
        release = params["release_event"]
        if release not in RELEASE_EVENTS:
            raise ValueError(
                f"release_event is {release!r} (allowed: {', '.join(RELEASE_EVENTS)})"
            )
        self._parameters = {
            "window_ms": int(params["stats_window_ms"]),
            "idle_ns": int(params["idle_state_ms"]) * NS_PER_MS,
            "by_dispatch": int(release == "dispatch"),
            "with_evictions": int("cache_evictions" in extra),
            "with_reads": int("cache_reads" in extra),
        }
        self._policies = tuple(policies)
        variants: Sequence[Mapping[str, Any]] = params["variants"] or ({},)
        self._variants = [Variant(given, params, self.policies) for given in variants]

    def step(self, state: bytes | None, blobs: Sequence[bytes], stream_ms: int) -> Step:
        """Judge a batch of one shard; see `state.engine.job`."""
        s = self.shard_of(state)
        refused = Refused(NAME)
        records = read_blobs(blobs, s.names, COLUMNS)
        other = ~np.isin(records["event_type"], READ)
        if other.any():
            records = take(records, ~other)
        keys = _Keys(s, stream_ms, self._lateness_ns, self._idle_advance_ms, refused)
        keys.parameters = self._parameters
        for b in s.brokers.values():
            keys.prepare(b)
        keys.change_configured()
        keys.admit(keys.take_stars(records))
        tables: dict[str, list[pa.Table]] = {}
        for broker in s.brokers.values():
            for name, table in rows.of(broker, s.names).items():
                tables.setdefault(name, []).append(table)
        quarantine = refused.table(s.names)
        if quarantine is not None:
            tables["quarantine"] = [quarantine]
        keys.forget_stars()
        wake = self._wake(s, keys)
        return Step(
            shards.write(s), {name: pa.concat_tables(t) for name, t in tables.items()}, wake,
            refused.needed_idle_advance_ms,
        )

    def shard_of(self, state: bytes | None) -> Shard:
        if state:
            return shards.read(state, self._policies, self._variants, self.make_broker)
        return shards.new(self._policies, self._variants, self.make_broker)

    def totals(self, state: bytes | None) -> list[dict[str, Any]]:
        """What each cache has counted since its keys began, over all of them; levels are the sum
        of the largest of each key."""
        found = []
        s = self.shard_of(state)
        for i in range(len(self._variants)):
            sums: dict[str, Any] = {}
            for b in s.brokers.values():
                for name, value in rows.totals(b, i).items():
                    sums[name] = sums.get(name, 0) + value
            reads = sums.get("hits", 0) + sums.get("misses", 0)
            found.append({**sums, "hit_ratio": sums["hits"] / reads if reads else None})
        return found

    def _wake(self, s: Shard, keys: Admission) -> int | None:
        """The first wall time of the stream at which this shard would do something by itself.

        Passes whose removals nobody asked for wait for the end of the window.
        """
        times = []
        wall = s.waiting["ts_wall_ms"]
        known = wall[wall != NULL]
        if len(known):
            times.append(int(known.min()))
        for b in s.brokers.values():
            k = b.key
            if not k["any"] or k["last_wall_ms"] == NULL:
                continue
            if k["touched"]:
                times.append(int(k["window_start_ms"]) + int(k["window_ms"]) - 1)
            if k["with_evictions"]:
                due = int(next_effect(b.world))
                if due != LARGEST:
                    after = (due - int(k["last_ns"])) // NS_PER_MS
                    times.append(int(k["last_wall_ms"]) + after - 1)
            times += [x.policy.wall_ms for x in keys.pending(b)]
        return max(min(times), 0) if times else None
