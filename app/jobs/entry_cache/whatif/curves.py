"""Every policy at every size on one trace. Each broker has a cache of its own, of the given size."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.jobs.entry_cache.whatif.trace import PackedTrace
from state.entry_cache.belady import compare_brokers
from state.entry_cache.declaration import NAME as JOB

if TYPE_CHECKING:
    from app.config.settings import Settings

ONE_WINDOW_MS = 2**40
SMALLEST = 5
"""The series of sizes begins at the working set / 2**5 and ends at twice the working set."""
Place = tuple[str, str]
"""Cluster and broker."""


@dataclass(frozen=True)
class Curve:
    """A policy and its own cache settings (keys of `entry_cache`)."""

    policy: str
    own: tuple[tuple[str, Any], ...] = ()

    @property
    def label(self) -> str:
        """Its name, with the settings that differ between curves."""
        return ", ".join([self.policy, *(f"{name} {value}" for name, value in self.own)])

    def variant(self, max_bytes: int | None) -> dict[str, Any]:
        """The settings of its cache at a size."""
        return {"policy": self.policy, "max_bytes": max_bytes, **dict(self.own)}


@dataclass(frozen=True)
class CurvePoint:
    """The results of one curve at one size."""

    curve: Curve
    max_bytes: int | None
    brokers: Mapping[Place, Mapping[str, int]]
    """Counters by broker."""

    @property
    def total(self) -> dict[str, int]:
        """Sums over all brokers."""
        sums: dict[str, int] = {}
        for counted in self.brokers.values():
            for name, value in counted.items():
                sums[name] = sums.get(name, 0) + value
        return sums

    @property
    def hit_ratio(self) -> float:
        """Hits as a share of all reads, 0 to 1."""
        return hit_ratio(self.total) or 0.0


def hit_ratio(counted: Mapping[str, int]) -> float | None:
    """Hits as a share of all reads; None without a read."""
    reads = counted.get("hits", 0) + counted.get("misses", 0)
    return counted["hits"] / reads if reads else None


OF_BROKERS = {"storage_reads": "as_broker"}
"""What a comparison of brokers' policies follows, unless it varies it."""


class BakeOff:
    """A trace that is replayed through caches."""

    def __init__(self, settings: Settings, trace: PackedTrace, release_event: str) -> None:
        documents = (json.dumps(d, sort_keys=True) for d in settings.policy_dicts())
        self._policies = sorted(documents)
        self._params = {
            **settings.job_params(JOB),
            **OF_BROKERS,
            "release_event": release_event,
            "extra_outputs": (),
            "stats_window_ms": ONE_WINDOW_MS,
        }
        self._trace = trace

    def points(self, curves: Sequence[Curve], sizes: Sequence[int | None]) -> list[CurvePoint]:
        """Every curve at every size."""
        places = [(curve, size) for curve in curves for size in sizes]
        variants = [curve.variant(size) for curve, size in places]
        params = {**self._params, "variants": variants}
        counted: list[dict[Place, Mapping[str, int]]] = [{} for _ in places]

        def replayed(blobs: Sequence[bytes]) -> list[tuple[str, str, list[dict[str, int]]]]:
            return compare_brokers(blobs, params, self._policies, self._trace.latest_ms)

        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            for brokers in pool.map(replayed, self._trace.shards):
                for cluster, broker, by_variant in brokers:
                    for of_point, counts in zip(counted, by_variant, strict=True):
                        of_point[cluster, broker] = counts
        return [
            CurvePoint(curve, size, brokers)
            for (curve, size), brokers in zip(places, counted, strict=True)
        ]

    def working_set(self, curve: Curve) -> int:
        """The most bytes that an unlimited cache of any broker held at once."""
        (point,) = self.points([curve], [None])
        return max(counted["max_used_bytes"] for counted in point.brokers.values())


def around(working_set: int) -> list[int]:
    """Seven sizes, each twice the one before, from a 32nd of the working set to its double."""
    first = max(working_set, 2**SMALLEST) / 2**SMALLEST
    digits = 10 ** max(math.floor(math.log10(first)) - 1, 0)
    first = max(round(first / digits) * digits, 1)
    return [first * 2**i for i in range(SMALLEST + 2)]
