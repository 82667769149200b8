"""Metrics of the job, under the names of Pulsar's own and further ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb

from app.show.metrics.definition import BROKER, Definition, MetricsSection, defined
from app.show.metrics.entities import Bounds
from app.show.metrics.part import Labels, MetricsPart, Sample, Sums, labels, rows

MS_PER_S = 1000.0


class Caches(MetricsPart):
    """Entry caches, each whole."""

    reads = ("cache_stats",)

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self._sums = Sums(
            "pulsar_ml_cache_evictions",
            "pulsar_ml_cache_inserted_entries_total",
            "pulsar_ml_cache_evicted_entries_total",
        )
        self._reads = Sums("weir_cache_reads_total")
        self._newest: dict[Labels, tuple[int, list[Any]]] = {}

    def take(self, fresh: duckdb.DuckDBPyConnection) -> None:
        which = "cluster, broker, policy, max_bytes"
        self._sums.add(
            rows(
                fresh,
                f"""
            SELECT {which}, sum(passes_size), sum(inserted), sum(evicted_time + evicted_size)
            FROM cache_stats WHERE topic IS NULL GROUP BY {which}
        """,
            )
        )
        self._reads.add(
            rows(
                fresh,
                f"""
            SELECT {which}, result, sum(CASE result WHEN 'hit' THEN hits ELSE misses END)
            FROM cache_stats CROSS JOIN (VALUES ('hit'), ('miss')) AS r(result)
            WHERE topic IS NULL GROUP BY {which}, result
        """,
            )
        )
        for *names, at_ms, window_ms, entries, used, hits, misses, hit_bytes, miss_bytes in rows(
            fresh,
            f"""
            SELECT {which}, window_start_ms, window_ms, entries, used_bytes, hits, misses,
              hit_bytes, miss_bytes
            FROM cache_stats WHERE topic IS NULL
            QUALIFY row_number() OVER (PARTITION BY {which} ORDER BY window_start_ms DESC) = 1
        """,
        ):
            per_s = [n * MS_PER_S / window_ms for n in (hits, misses, hit_bytes, miss_bytes)]
            key = labels(names)
            if at_ms >= self._newest.get(key, (at_ms,))[0]:
                self._newest[key] = (at_ms, [entries, used, *per_s])

    def samples(self) -> Iterator[Sample]:
        yield from self._sums.samples()
        yield from self._reads.samples()
        ends = (
            "entries",
            "used_size",
            "hits_rate",
            "misses_rate",
            "hits_throughput",
            "misses_throughput",
        )
        for key, (_, values) in self._newest.items():
            for end, value in zip(ends, values, strict=True):
                yield f"pulsar_ml_cache_{end}", key, value


_CACHE = (*BROKER, "policy", "max_bytes")
_DEFINITIONS = (
    *defined(
        _CACHE,
        "cache_stats",
        ("pulsar_ml_cache_evictions", "counter as gauge", "Passes that had to free memory."),
        ("pulsar_ml_cache_entries", "gauge", "Entries in the cache."),
        ("pulsar_ml_cache_inserted_entries_total", "counter", "Entries inserted."),
        (
            "pulsar_ml_cache_evicted_entries_total",
            "counter",
            "Entries that were evicted, for their age or the cache's size.",
        ),
        ("pulsar_ml_cache_used_size", "gauge", "Bytes in the cache."),
        (
            "pulsar_ml_cache_hits_rate",
            "gauge",
            "Reads per second that found their entry, in the newest window.",
        ),
        (
            "pulsar_ml_cache_misses_rate",
            "gauge",
            "Reads per second that went to storage, in the newest window.",
        ),
        (
            "pulsar_ml_cache_hits_throughput",
            "gauge",
            "Bytes per second from the cache, in the newest window.",
        ),
        (
            "pulsar_ml_cache_misses_throughput",
            "gauge",
            "Bytes per second from storage, in the newest window.",
        ),
    ),
    Definition(
        "weir_cache_reads_total",
        "counter",
        (*_CACHE, "result"),
        "Reads of entries, by result: hit or miss.",
        "cache_stats",
    ),
)
METRICS = (MetricsSection("Entry cache", _DEFINITIONS, (Caches,)),)
