"""Every policy at every size on one trace: exactly, or on a sample of its entries.

Each broker has a cache of its own, of the requested size. A cache of a sample with rate r has about
r of that size, corrected twice: by the share of the bytes that the sample has, and by one entry,
because an entry that does not fit is lost to a small cache as to a large one. To hold enough
entries a small size is replayed on a larger sample, at last on the whole trace.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from app.whatif.bakeoff.trace import JOB, READS, Trace
from state.engine.blobs import NULL, Blob
from state.entry_cache.belady import compare_brokers
from state.events import KIND_INDEX

if TYPE_CHECKING:
    from app.config.settings import Settings

LEAST_ENTRIES = 250
"""Least number of entries that a sampled cache holds; with fewer, hit ratios are off by more than 1
%.
"""
LARGEST_SAMPLE = 0.5
"""Largest share; a larger one would save nothing over the whole trace."""
ONE_WINDOW_MS = 2**40
SMALLEST = 5
"""The series of sizes begins at the working set / 2**5 and ends at twice the working set."""
COUNTS = ("hits", "misses", "evicted_wanted", "work")
"""Counters that grow with the share of the entries."""
BYTES = ("hit_bytes", "storage_bytes", "evicted_wanted_bytes", "wanted_bytes", "max_used_bytes")
"""Counters that grow with the share of the bytes. The number of passes does not depend on the size.
"""
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
class Point:
    """The results of one curve at one size."""

    curve: Curve
    max_bytes: int | None
    brokers: Mapping[Place, Mapping[str, float]]
    """Counters by broker, estimated if `rate` is below 1."""
    rate: float = 1.0
    error: float | None = None
    """Difference between sampled and exact hit ratios of the curve, where both are known."""

    @property
    def total(self) -> dict[str, float]:
        """Sums over all brokers."""
        sums: dict[str, float] = {}
        for counted in self.brokers.values():
            for name, value in counted.items():
                sums[name] = sums.get(name, 0) + value
        return sums

    @property
    def hit_ratio(self) -> float:
        """Hits as a share of all reads, 0 to 1."""
        return hit_ratio(self.total) or 0.0


def hit_ratio(counted: Mapping[str, float]) -> float | None:
    """Hits as a share of all reads; None without a read."""
    reads = counted.get("hits", 0) + counted.get("misses", 0)
    return counted["hits"] / reads if reads else None


class BakeOff:
    """A trace that is replayed through caches."""

    def __init__(self, settings: Settings, trace: Trace, release_event: str) -> None:
        documents = (json.dumps(d, sort_keys=True) for d in settings.policy_dicts())
        self._policies = sorted(documents)
        self._params = {
            **settings.job_params(JOB),
            "release_event": release_event,
            "extra_outputs": (),
            "stats_window_ms": ONE_WINDOW_MS,
        }
        self._reads = KIND_INDEX[READS[release_event]]
        self._trace = trace
        self._sizes = [_extent(blobs, self._reads) for blobs in trace.shards]
        entries = sum(e.entries for e in self._sizes)
        self._entry_bytes = sum(e.bytes for e in self._sizes) / entries if entries else 0.0

    @property
    def one_size(self) -> bool:
        """Whether all entries have one size, so that foresight bounds every policy that keeps to
        its size.
        """
        return len(frozenset().union(*(e.sizes for e in self._sizes))) <= 1

    def exact(self, curves: Sequence[Curve], sizes: Sequence[int | None]) -> list[Point]:
        """Every curve at every size, on all entries."""
        return self._points(self._trace, curves, sizes, 1.0)

    def curves(self, curves: Sequence[Curve], sizes: Sequence[int], rate: float) -> list[Point]:
        """Every curve at every size, on at least this share of the entries."""
        by_rate: dict[float, list[int]] = {}
        for size in sizes:
            by_rate.setdefault(self.rate_of(size, rate), []).append(size)
        found: dict[tuple[Curve, int | None], Point] = {}
        for own, mine in by_rate.items():
            points = self._sampled(curves, mine, own)
            found |= {(p.curve, p.max_bytes): p for p in points}
        return [found[curve, size] for curve in curves for size in sizes]

    def rate_of(self, size: int, rate: float) -> float:
        """The share of the entries on which a size is replayed: the requested one, doubled until
        the cache holds enough entries.
        """
        while rate <= LARGEST_SAMPLE and size * rate < LEAST_ENTRIES * self._entry_bytes:
            rate *= 2
        return rate if rate <= LARGEST_SAMPLE else 1.0

    def working_set(self, curve: Curve, rate: float) -> int:
        """The most bytes that an unlimited cache of any broker held at once."""
        point = self._sampled([curve], [None], rate)[0]
        return max(int(counted["max_used_bytes"]) for counted in point.brokers.values())

    def _sampled(
        self, curves: Sequence[Curve], sizes: Sequence[int | None], rate: float
    ) -> list[Point]:
        """A sample, or all entries if the sample of a short trace is empty."""
        if rate < 1.0:
            points = self._points(self._trace.sample(rate), curves, sizes, rate)
            if points[0].brokers:
                return points
        return self.exact(curves, sizes)

    def _points(
        self, trace: Trace, curves: Sequence[Curve], sizes: Sequence[int | None], rate: float
    ) -> list[Point]:
        asked = [(curve, size) for curve in curves for size in sizes]
        found: list[dict[Place, Mapping[str, float]]] = [{} for _ in asked]

        def replayed(shard: int) -> list[tuple[str, str, list[dict[str, float]]]]:
            blobs, whole = trace.shards[shard], self._sizes[shard]
            share = _Share.of(_extent(blobs, self._reads), whole) if rate < 1.0 else _Share()
            spare = (1.0 - rate) * self._entry_bytes
            variants = [
                curve.variant(None if size is None else round(size * share.bytes + spare))
                for curve, size in asked
            ]
            unique = {json.dumps(v, sort_keys=True): v for v in variants}
            params = {**self._params, "variants": list(unique.values())}
            places = {text: i for i, text in enumerate(unique)}
            return [
                (
                    cluster,
                    broker,
                    [
                        share.scaled(counted[places[json.dumps(v, sort_keys=True)]])
                        for v in variants
                    ],
                )
                for cluster, broker, counted in compare_brokers(
                    blobs, params, self._policies, trace.latest_ms
                )
            ]

        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            for brokers in pool.map(replayed, range(len(trace.shards))):
                for cluster, broker, counted in brokers:
                    for i, counts in enumerate(counted):
                        found[i][cluster, broker] = counts
        return [
            Point(curve, size, brokers, rate)
            for (curve, size), brokers in zip(asked, found, strict=True)
        ]


def measured(sampled: Sequence[Point], exact: Sequence[Point]) -> tuple[list[Point], float]:
    """Sampled points with the exact ones in their places, each with the error of its curve; and the
    largest of these errors.
    """
    by_place = {(p.curve, p.max_bytes): p for p in exact}
    errors: dict[Curve, float] = {}
    for point in sampled:
        known = by_place.get((point.curve, point.max_bytes))
        if known is not None and point.rate < 1.0:
            error = abs(known.hit_ratio - point.hit_ratio)
            errors[point.curve] = max(errors.get(point.curve, 0.0), error)
    points = [
        by_place.get((p.curve, p.max_bytes))
        or (p if p.rate == 1.0 else replace(p, error=errors.get(p.curve)))
        for p in sampled
    ]
    return points, max(errors.values(), default=0.0)


def around(working_set: int) -> list[int]:
    """Seven sizes, each twice the one before, from a 32nd of the working set to its double."""
    first = max(working_set, 2**SMALLEST) / 2**SMALLEST
    digits = 10 ** max(math.floor(math.log10(first)) - 1, 0)
    first = max(round(first / digits) * digits, 1)
    return [first * 2**i for i in range(SMALLEST + 2)]


# -- what a part of a trace has --------------------------------------------------------------


@dataclass(frozen=True)
class _Extent:
    """Number and bytes of the entries that were added or read, and the number that were read."""

    entries: int
    bytes: int
    reads: int
    sizes: frozenset[int] = frozenset()
    """Sizes of entries (bytes), at most two of them."""


@dataclass(frozen=True)
class _Share:
    """The share of the whole trace that a sample has."""

    reads: float = 1.0
    bytes: float = 1.0

    @classmethod
    def of(cls, part: _Extent, whole: _Extent) -> _Share:
        """Shares above 0, also of an empty part."""
        return cls(
            max(part.reads, 1) / max(whole.reads, 1), max(part.bytes, 1) / max(whole.bytes, 1)
        )

    def scaled(self, counted: Mapping[str, int]) -> dict[str, float]:
        """Counters scaled to the whole trace."""
        by = {**dict.fromkeys(COUNTS, self.reads), **dict.fromkeys(BYTES, self.bytes)}
        return {name: value / by.get(name, 1.0) for name, value in counted.items()}


def _extent(blobs: Iterable[bytes], reads: int) -> _Extent:
    entries = size = read = 0
    found: set[int] = set()
    for blob in blobs:
        kinds, every = Blob(blob).values(("event_type", "entry_bytes"))
        known = np.isin(kinds, (KIND_INDEX["entry_added"], reads))
        sizes = np.where(every == NULL, 0, every)[known]
        entries, size, read = (
            entries + len(sizes),
            size + int(sizes.sum()),
            read + int((kinds == reads).sum()),
        )
        given = every[every != NULL]
        if len(given):
            found |= {int(given.min()), int(given.max())}
    return _Extent(entries, size, read, frozenset(sorted(found)[:2]))
