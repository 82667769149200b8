"""The view of the entry cache, in DuckDB and in Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from app.tables.definitions import TABLES, VIEWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE = 60_000
COUNTED = {"passes_size": 2, "inserted": 10, "evicted_time": 3, "evicted_size": 1}


def stats(minute: int, **columns: Any) -> dict[str, Any]:
    row = {
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
    return {name: row.get(name) for name in TABLES["cache_stats"].schema.names}


ROWS = [
    stats(0, entries=99),
    stats(1),
    stats(1, topic="persistent://a/b/t"),
    stats(0, policy="expected_reads", max_bytes=7, hits=0),
]
EXPECTED = {
    "pulsar_ml_cache_evictions": ("counter", 4.0),
    "pulsar_ml_cache_inserted_entries_total": ("counter", 20.0),
    "pulsar_ml_cache_evicted_entries_total": ("counter", 8.0),
    "pulsar_ml_cache_entries": ("gauge", 5.0),
    "pulsar_ml_cache_used_size": ("gauge", 50.0),
    "pulsar_ml_cache_hits_rate": ("gauge", 2.0),
    "pulsar_ml_cache_misses_rate": ("gauge", 0.1),
    "pulsar_ml_cache_hits_throughput": ("gauge", 10.0),
    "pulsar_ml_cache_misses_throughput": ("gauge", 0.5),
}


def cache_stats() -> pa.Table:
    return pa.Table.from_pylist(ROWS, TABLES["cache_stats"].schema)


def check(rows: list[dict[str, Any]]) -> None:
    whole = [r for r in rows if r["policy"] == "fifo"]
    assert {r["metric"]: (r["kind"], r["value"]) for r in whole} == EXPECTED
    assert len(whole) == len(EXPECTED) == len(rows) - len(whole)
    other = {r["metric"]: r["value"] for r in rows if r["max_bytes"] == 7}
    assert other["pulsar_ml_cache_evictions"] == 2.0 and other["pulsar_ml_cache_hits_rate"] == 0.0


def test_metrics_of_caches_in_duckdb() -> None:
    connection = duckdb.connect()
    connection.register("cache_stats", cache_stats())
    check(connection.sql(VIEWS["cache_metrics"].sql).to_arrow_table().to_pylist())


def test_metrics_of_caches_in_spark(spark: SparkSession) -> None:
    spark.createDataFrame(
        cache_stats().select(
            [
                "cluster",
                "broker",
                "policy",
                "max_bytes",
                "topic",
                "window_start_ms",
                "window_ms",
                "entries",
                "used_bytes",
                "hits",
                "misses",
                "hit_bytes",
                "miss_bytes",
                *COUNTED,
            ]
        )
    ).createOrReplaceTempView("cache_stats")
    check([row.asDict() for row in spark.sql(VIEWS["cache_metrics"].sql).collect()])
    spark.catalog.dropTempView("cache_stats")
