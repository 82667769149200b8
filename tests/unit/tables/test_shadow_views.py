"""The view over live and shadow policies, in DuckDB and in Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from app.config.settings import Settings
from app.read.relations import Warehouse, connect
from app.tables.definitions import TABLES, VIEWS
from app.tables.shadow_effects import MEASURES
from tests.support.client_quota_rows import measured, stats
from tests.support.ready_questions import check, new_id
from tests.support.throttle_rows import COMMON, OTHER, START_MS, TOPIC, frame, window, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NS = 1_000_000_000
COLUMNS = f"policy, cluster, name, at_ms - {START_MS} AS at_ms, measure, live, shadow"
MOST = 2**63 - 1


def backlog(name: str, at_ms: int, **changes: Any) -> dict[str, Any]:
    return {**COMMON, "job": "backlog", "topic": name, "ts_wall_ms": START_MS + at_ms, **changes}


def rows() -> dict[str, list[dict[str, Any]]]:
    """Two shadows that have judged some of the time, and rows of each measure."""
    live: dict[str, list[dict[str, Any]]] = {
        "topic_throttle_stats": [window(n, limited_times=n, culprit_ns=n * NS) for n in range(5)],
        "producer_id_decisions": [new_id(0, "u", 1, "counted"), new_id(5, "u", 2, "rejected")],
        "backlog_checks": [check(TOPIC, n) for n in range(3)],
        "backlog_evictions": [backlog(TOPIC, 0, entries_skipped=MOST)],
        "producer_refusals": [],
        "client_quota_stats": [
            stats(0, throttled=3, throttle_ms=1500),
            measured(0, throttled=4),
            stats(1, throttled=9),
        ],
    }
    shadows = {
        "topic_throttle_stats": [
            ("next", window(2, limited_times=1, collateral_ns=NS)),
            ("next", window(3)),
            ("old", window(0, topic=OTHER, limited_times=7)),
        ],
        "producer_id_decisions": [
            ("next", new_id(0, "u", 1, "throttled")),
            ("next", new_id(5, "u", 2, "rejected")),
        ],
        "backlog_checks": [("next", check(TOPIC, n, exceeded_size=n == 1)) for n in range(3)],
        "backlog_evictions": [("next", backlog(TOPIC, 0, entries_skipped=3))],
        "producer_refusals": [("next", backlog(TOPIC, 0, error="e"))],
        "client_quota_stats": [
            ("next", stats(0, throttled=5, throttle_ms=2000)),
            ("next", measured(0, throttled=7)),
        ],
    }
    return live | {
        f"shadow_{name}": [{**row, "policy": policy} for policy, row in its]
        for name, its in shadows.items()
    }


def expected() -> set[tuple[Any, ...]]:
    minute = 60_000
    return {
        (policy, "east", *row)
        for policy, *row in (
            ("next", TOPIC, 3 * minute, "pauses", 2.0, 0.0),
            ("next", TOPIC, 4 * minute, "pauses", 3.0, 0.0),
            ("next", TOPIC, 3 * minute, "pauses", 0.0, 1.0),
            ("next", TOPIC, 3 * minute, "paused_s", 2.0, 0.0),
            ("next", TOPIC, 4 * minute, "paused_s", 3.0, 0.0),
            ("next", TOPIC, 3 * minute, "paused_s", 0.0, 1.0),
            ("next", TOPIC, 3 * minute, "victim_s", 0.0, 1.0),
            ("old", OTHER, minute, "pauses", 0.0, 7.0),
            ("next", "u", 0, "throttled_ids", 0.0, 1.0),
            ("next", "u", 5, "rejected_ids", 0.0, 1.0),
            ("next", "u", 5, "rejected_ids", 1.0, 0.0),
            ("next", "etl", minute, "throttled_requests", 3.0, 0.0),
            ("next", "etl", minute, "throttled_requests", 0.0, 5.0),
            ("next", "etl", minute, "rates_over_quota", 4.0, 0.0),
            ("next", "etl", minute, "rates_over_quota", 0.0, 7.0),
            ("next", "etl", minute, "client_throttle_s", 1.5, 0.0),
            ("next", "etl", minute, "client_throttle_s", 0.0, 2.0),
            ("next", TOPIC, 0, "checks_over_quota", 0.0, 1.0),
            ("next", TOPIC, 0, "evicted_entries", 0.0, 3.0),
            ("next", TOPIC, 0, "evicted_entries", float(MOST), 0.0),
            ("next", TOPIC, 0, "refused_producers", 0.0, 1.0),
        )
    }


def test_only_the_time_that_both_have_judged_counts(
    make_settings: Callable[..., Settings], spark: SparkSession
) -> None:
    settings = make_settings()
    for name, its in rows().items():
        write(settings.warehouse, name, its)
        spark.createDataFrame(frame(name, its)).createOrReplaceTempView(name)
    assert {measure for *_, measure, _, _ in expected()} == {one.name for one in MEASURES}
    sql = f"SELECT {COLUMNS} FROM shadow_effects"
    found = connect(Warehouse.of(settings.location), sql).execute(sql)
    in_duckdb = found.fetchall()
    assert len(in_duckdb) == len(expected()) and set(in_duckdb) == expected()
    spark.sql(VIEWS["shadow_effects"].sql).createOrReplaceTempView("shadow_effects")
    in_spark = [tuple(r) for r in spark.sql(f"SELECT {COLUMNS} FROM shadow_effects").collect()]
    assert sorted(in_spark) == sorted(in_duckdb)


def test_tables_of_shadows_have_the_columns_of_the_live_ones() -> None:
    for table in TABLES.values():
        if table.live is not None:
            assert table.names == (*TABLES[table.live].names, "policy")
