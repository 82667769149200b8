"""The view quota_usage in DuckDB and Spark, and the statements that register tables and views."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from app.cli import main
from app.read.table_relation import sql_type
from app.tables.definitions import TABLES, VIEWS
from tests.support.client_quota_rows import stats
from tests.support.quota_usage import MINUTE, level, user
from tests.support.ready_questions import CASES, check, limiter, new_id
from tests.support.throttle_rows import OTHER, START_MS, TOPIC, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = (
    "kind",
    "cluster",
    "broker",
    "entity",
    "limit",
    "used",
    "ratio",
    "peak",
    "breached",
    "window_start_ms",
    "window_ms",
)


ROWS = {
    "limiter_stats": [
        # Below its limit by the minute, but the bucket was empty once.
        limiter(
            0,
            TOPIC,
            0.5,
            messages=3000,
            bytes=600_000,
            limit_msgs=100.0,
            limit_bytes=40_000.0,
            min_balance_msgs=0,
            min_balance_bytes=1,
        ),
        limiter(
            1,
            "b1",
            0.1,
            limiter="broker",
            messages=600,
            bytes=None,
            limit_msgs=None,
            limit_bytes=None,
        ),
        limiter(
            1,
            "gold",
            1.5,
            limiter="resource_group",
            messages=None,
            bytes=90_000,
            limit_msgs=None,
            limit_bytes=1000.0,
            min_balance_bytes=None,
        ),
        level("c1", "connection", 1000, 1000),
        level("c2", "connection", 999, 1000),
        level("0", "io_thread", 64, 64),
        level("1", "io_thread", 65, 64),
    ],
    "producer_id_stats": [
        user("etl", rate=0.5, utilisation=2.0, rejected=3, throttle_time_avg_ms=9.0),
        user("idle", rate=0.0, utilisation=0.0),
        user("none", rate=2.0, utilisation=None, rejected=1),
        user("free", rate=5.0, utilisation=1e-12),
        user("unheard", rate=5.0, utilisation=0.5),
    ],
    "producer_id_decisions": [
        new_id(0, "etl", 1, "counted", bound_source="none"),
        new_id(1, "etl", 2, "rejected"),
        new_id(0, "idle", 3, "counted"),
        new_id(0, "none", 4, "rejected", bound=0.0),
        new_id(0, "free", 5, "counted", bound_source="none"),
    ],
    "client_quota_stats": [
        stats(0, "etl", 1.2, throttled=3),
        stats(0, "etl", 0.3, basis="metrics"),
        stats(0, "web", 0.5, client="app", quota_type="request"),
        stats(0, "", 0.1, client="app", quota_type="controller_mutation"),
        stats(0, "free", None, bound=None),
    ],
    "backlog_checks": [
        check(
            TOPIC,
            0,
            limit_bytes=100,
            size_usage=0.8,
            age_s=70,
            limit_s=60,
            time_usage=1.1,
            exceeded_time=True,
        ),
        check(OTHER, 0, age_s=-1, limit_s=60),
    ],
}
EXPECTED = [
    ("backlog_age", TOPIC, 60.0, 70.0, 70 / 60, 70 / 60, True, START_MS, 0),
    ("backlog_age", OTHER, 60.0, None, None, None, False, START_MS, 0),
    ("backlog_size", TOPIC, 100.0, 80.0, 0.8, 0.8, False, START_MS, 0),
    ("client_mutations", "app", 100.0, 50.0, 0.5, 0.1, False, START_MS, MINUTE),
    ("client_produce_bytes", "etl", 100.0, 50.0, 0.5, 1.2, True, START_MS, MINUTE),
    ("client_request_time", "web/app", 100.0, 50.0, 0.5, 0.5, False, START_MS, MINUTE),
    ("connection_requests", "c1", 1000.0, 1000.0, 1.0, 1.0, True, START_MS, MINUTE),
    ("connection_requests", "c2", 1000.0, 999.0, 0.999, 0.999, False, START_MS, MINUTE),
    ("io_thread_bytes", "0", 64.0, 64.0, 1.0, 1.0, False, START_MS, MINUTE),
    ("io_thread_bytes", "1", 64.0, 65.0, 65 / 64, 65 / 64, True, START_MS, MINUTE),
    ("producer_ids", "etl", 0.25, 0.5, 2.0, 2.0, True, START_MS, MINUTE),
    ("producer_ids", "idle", None, 0.0, None, None, False, START_MS, MINUTE),
    ("producer_ids", "none", 0.0, 2.0, None, None, True, START_MS, MINUTE),
    ("resource_group_bytes", "gold", 1000.0, 1500.0, 1.5, 1.5, True, START_MS + MINUTE, MINUTE),
    ("topic_bytes", TOPIC, 40_000.0, 10_000.0, 0.25, 39_999 / 40_000, False, START_MS, MINUTE),
    ("topic_msgs", TOPIC, 100.0, 50.0, 0.5, 1.0, True, START_MS, MINUTE),
]


@pytest.fixture
def warehouse(tmp_warehouse: str) -> str:
    for name, rows in ROWS.items():
        write(tmp_warehouse, name, [{c: r.get(c) for c in TABLES[name].names} for r in rows])
    return tmp_warehouse


def plain(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    assert all(tuple(row) == COLUMNS for row in rows)
    assert {(row["cluster"], row["broker"]) for row in rows} == {("east", "b1")}
    return sorted(
        (tuple(v for k, v in row.items() if k not in ("cluster", "broker")) for row in rows),
        key=lambda row: row[:2],
    )


def test_quota_usage_lays_every_quota_side_by_side(
    warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["query", "SELECT * FROM quota_usage", "--json", "--warehouse", warehouse]) == 0
    assert plain(json.loads(capsys.readouterr().out)) == EXPECTED


def statements(capsys: pytest.CaptureFixture[str], warehouse: str, *options: str) -> list[str]:
    capsys.readouterr()
    assert main(["tables", "--ddl", "--warehouse", warehouse, *options]) == 0
    printed = re.sub(r"^--.*\n", "", capsys.readouterr().out, flags=re.M)
    return [text.strip() for text in printed.split(";\n") if text.strip()]


def test_the_statements_register_tables_and_views_in_spark(
    warehouse: str, tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, rows in CASES["blame, by pair of what is not so simple"][0].items():
        write(warehouse, name, rows)
    ddl = statements(capsys, warehouse)
    assert ddl == statements(capsys, warehouse, "--engine", "spark")
    for name in (*TABLES, *VIEWS):  # other tests' views would come before tables of their name
        spark.catalog.dropTempView(name)
    spark.sql(f"CREATE DATABASE weir_ddl LOCATION '{tmp_path}/catalogue'")
    try:
        spark.sql("USE weir_ddl")
        for _ in range(2):  # again, when more tables are there
            for statement in ddl:
                spark.sql(statement)
        there = {
            row["tableName"]
            for row in spark.sql("SHOW TABLES IN weir_ddl").collect()
            if not row["isTemporary"]
        }
        views = {v for v in VIEWS if set(VIEWS[v].reads) <= {*ROWS, "throttle_events"}}
        tables = {*ROWS, "throttle_events"}
        assert there == {*tables, *(f"{name}_times" for name in tables), *views}
        times = spark.sql("SELECT * FROM weir_ddl.throttle_events_times")
        stored = spark.sql("SELECT * FROM weir_ddl.throttle_events")
        assert dict(times.dtypes)["ts_wall"] == "timestamp"
        assert times.count() == stored.count() > 0
        assert [row[0] for row in times.selectExpr("unix_millis(ts_wall)").collect()] == [
            row["ts_wall_ms"] for row in stored.collect()
        ]
        found = spark.sql("SELECT * FROM weir_ddl.quota_usage").collect()
        assert plain([row.asDict() for row in found]) == EXPECTED
        assert spark.sql("SELECT * FROM weir_ddl.throttle_intervals").count() == 3
    finally:
        spark.sql("USE default")
        spark.sql("DROP DATABASE weir_ddl CASCADE")


def test_the_statements_register_tables_and_views_in_duckdb(
    warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ddl = statements(capsys, warehouse, "--engine", "duckdb")
    assert ddl[:2] == ["INSTALL delta", "LOAD delta"]
    with duckdb.connect() as connection:
        # The extension is a download: one of its functions stands in for it. Nothing was deleted
        # from these tables, so their rows are those of their files.
        connection.execute(
            "CREATE MACRO delta_scan(place) AS TABLE"
            " SELECT * FROM read_parquet(place || '/*.parquet')"
        )
        for statement in ddl[2:]:
            connection.execute(statement)
        (same,) = connection.execute(
            "SELECT list(epoch_ms(window_start)) = list(window_start_ms) FROM producer_id_stats"
            " POSITIONAL JOIN producer_id_stats_times"
        ).fetchone()  # type: ignore[misc]
        assert same
        cursor = connection.execute("SELECT * FROM quota_usage")
        names = [column[0] for column in cursor.description or []]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    assert plain(rows) == EXPECTED


def test_statements_of_one_view_are_it_and_what_it_reads(
    warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ddl = statements(capsys, warehouse, "quota_usage")
    assert [text.split("\n")[0] for text in ddl] == [
        *(
            f"CREATE TABLE IF NOT EXISTS {name} USING DELTA LOCATION '{warehouse}/{name}'"
            for name in TABLES
            if name in ROWS
        ),
        "CREATE OR REPLACE VIEW quota_usage AS",
    ]
    assert len(statements(capsys, warehouse, "backlog_checks")) == 2


def test_a_time_beyond_the_calendar_is_null_in_the_view_of_times(
    warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, view = statements(capsys, warehouse, "backlog_checks", "--engine", "duckdb")[2:]
    with duckdb.connect() as connection:
        columns = {c.name: sql_type(c.type) for c in TABLES["backlog_checks"].columns}
        typed = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
        connection.execute(f"CREATE TABLE backlog_checks ({typed})")
        for ms in (0, 2**62, -(2**62), None):
            connection.execute("INSERT INTO backlog_checks (pass_ms) VALUES (?)", [ms])
        connection.execute(view)
        found = connection.execute("SELECT pass FROM backlog_checks_times").fetchall()
    assert found == [(datetime(1970, 1, 1),), (None,), (None,), (None,)]


def test_a_table_that_is_not_there_yet_is_named_in_a_comment(
    warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tables", "--ddl", "--warehouse", warehouse]) == 0
    out = capsys.readouterr().out
    assert "-- alerts: nothing has been written yet\n" in out and "VIEW throttle_metrics" not in out
    assert main(["tables", "--ddl", "--json", "--warehouse", warehouse]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["engine"] == "spark" and "alerts" in answer["missing"]
    assert len(answer["statements"]) == len(statements(capsys, warehouse))


def test_an_engine_that_is_not_known_is_refused(
    warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tables", "--ddl", "--engine", "oracle", "--warehouse", warehouse]) == 2
    assert "--engine oracle: allowed: spark, duckdb" in capsys.readouterr().err


def test_a_place_with_a_quote_in_its_name_is_quoted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "it's here")
    write(place, "backlog_checks", [dict.fromkeys(TABLES["backlog_checks"].names)])
    assert "it\\'s here" in statements(capsys, place)[0]
    assert "it''s here" in statements(capsys, place, "--engine", "duckdb")[2]
