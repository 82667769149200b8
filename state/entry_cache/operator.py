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

from state.engine import mono
from state.engine.clocks import ENDLESS_MS, NS_PER_MS
from state.engine.documents import Configured
from state.engine.job import Step
from state.engine.reach import Reach
from state.entry_cache import rows
from state.entry_cache.broker import Broker
from state.entry_cache.declaration import NAME
from state.entry_cache.settings import ONLINE, Variant
from state.entry_cache.shard import Brokers

RELEASE_EVENTS = ("dispatch", "entry_released")


class EntryCache(mono.MonoJob):
    """See the module; one instance serves all shards and keeps nothing between calls."""

    name = NAME
    form = Brokers.form
    policies: tuple[str, ...] = ONLINE
    """Values of the parameter `policy`."""
    make_broker = Broker

    def __init__(self, params: Mapping[str, Any], policies: Sequence[str] = ()) -> None:
        """`params` are the job's resolved parameters, `policies` the configured documents as
        JSON."""
        self._lateness_ns = int(params["allowed_lateness_ms"]) * NS_PER_MS
        self._idle_advance_ms = int(params["idle_advance_ms"])
        self._clock_skew_ms = int(params.get("clock_skew_ms", ENDLESS_MS))
        extra = params["extra_outputs"]
        release = params["release_event"]
        if release not in RELEASE_EVENTS:
            raise ValueError(f"release_event is {release!r} (allowed: {', '.join(RELEASE_EVENTS)})")
        self._parameters = {
            "window_ms": int(params["stats_window_ms"]),
            "idle_ns": int(params["idle_state_ms"]) * NS_PER_MS,
            "by_dispatch": int(release == "dispatch"),
            "with_evictions": int("cache_evictions" in extra),
            "with_reads": int("cache_reads" in extra),
        }
        self._policies = Configured(policies)
        variants: Sequence[Mapping[str, Any]] = params["variants"] or ({},)
        self._variants = [Variant(given, params, self.policies) for given in variants]

    def step(self, state: bytes | None, blobs: Sequence[bytes], reach: Reach) -> Step:
        """Judge a batch of one shard; see `state.engine.job`."""
        return mono.step(
            self.shard_of(state),
            blobs,
            reach,
            self._lateness_ns,
            self._idle_advance_ms,
            self._clock_skew_ms,
        )

    def shard_of(self, state: bytes | None) -> Brokers:
        """The shard behind its bytes, or a new one."""
        return Brokers(self._policies, self._variants, self._parameters, self.make_broker, state)

    def totals(self, state: bytes | None) -> list[dict[str, Any]]:
        """The counters of each cache since its keys began, over all keys; levels are the sum of the
        keys' largest.
        """
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
