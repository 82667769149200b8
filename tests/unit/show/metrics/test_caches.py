"""Metrics of caches: counters over all windows, gauges of the newest one."""

from __future__ import annotations

from typing import Any

import duckdb

from app.jobs.entry_cache.metrics import Caches
from app.show.metrics.entities import Bounds
from tests.support.throttle_rows import frame

MINUTE = 60_000
COUNTED = {"passes_size": 2, "inserted": 10, "evicted_time": 3, "evicted_size": 1}


def stats(minute: int, **columns: Any) -> dict[str, Any]:
    return {
        "cluster": "c",
        "broker": "b",
        "policy": "fifo",
        "max_bytes": None,
        "topic": None,
        "window_start_ms": minute * MINUTE,
        "window_ms": MINUTE,
        "entries": 5,
        "used_bytes": 50,
        "hits": 120,
        "misses": 6,
        "hit_bytes": 600,
        "miss_bytes": 30,
        **COUNTED,
        **columns,
    }


ROWS = [
    stats(0, entries=99),
    stats(1),
    stats(1, topic="persistent://a/b/t"),
    stats(0, policy="expected_reads", max_bytes=7, hits=0),
]
EXPECTED = {
    "pulsar_ml_cache_evictions": 4.0,
    "pulsar_ml_cache_inserted_entries_total": 20.0,
    "pulsar_ml_cache_evicted_entries_total": 8.0,
    "pulsar_ml_cache_entries": 5.0,
    "pulsar_ml_cache_used_size": 50.0,
    "pulsar_ml_cache_hits_rate": 2.0,
    "pulsar_ml_cache_misses_rate": 0.1,
    "pulsar_ml_cache_hits_throughput": 10.0,
    "pulsar_ml_cache_misses_throughput": 0.5,
}


def test_each_cache_has_the_names_of_pulsar() -> None:
    part = Caches(Bounds(top=10, idle_ms=MINUTE))
    with duckdb.connect() as connection:
        connection.register("cache_stats", frame("cache_stats", ROWS))
        part.take(connection)
    found = [sample for sample in part.samples() if sample[0].startswith("pulsar_")]
    whole = {name: value for name, labels, value in found if labels[2] == "fifo"}
    other = {name: value for name, labels, value in found if labels[3] == "7"}
    assert whole == EXPECTED
    assert other.keys() == EXPECTED.keys() and len(found) == 2 * len(EXPECTED)
    assert other["pulsar_ml_cache_evictions"] == 2.0 and other["pulsar_ml_cache_hits_rate"] == 0.0
