"""The views on what clients are told, in DuckDB and in Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from app.cli import main
from app.config.settings import Settings
from app.read.relations import Warehouse
from app.tables.definitions import TABLES, VIEWS
from tests.support import report_warehouse
from tests.support.client_quota_rows import stats, usage
from tests.support.ready_questions import changed, lag
from tests.support.throttle_rows import window, write, write_windows
from tests.support.views import TOPIC, traffic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T0 = 1_767_621_600_000
R0 = "TopicProduceQuotaExceeded"
MakeSettings = Callable[..., Settings]


def answer(capsys: pytest.CaptureFixture[str], warehouse: str, sql: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["query", sql, "--warehouse", warehouse, "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


METRICS = [
    ("publishRateLimitedTimes", TOPIC, None, None, None, 1),
    ("publishRateLimitedTimes", "persistent://t/ns/b", None, None, None, 1),
    ("pulsar.broker.connection.rate_limit.count", None, None, None, "paused", 1),
    ("pulsar.broker.connection.rate_limit.count", None, None, None, "resumed", 1),
    ("pulsar.broker.connection.rate_limit.count", None, None, None, "throttled", 0),
    ("pulsar.broker.connection.rate_limit.count", None, None, None, "unthrottled", 0),
    ("pulsar.broker.topic.publish.rate.limit.count", TOPIC, None, "topic", None, 1),
    ("pulsar.broker.topic.publish.rate.limit.count", "persistent://t/ns/b", None, "topic", None, 1),
    ("pulsar.client.producer.throttled_times", TOPIC, R0, None, None, 1000),
    ("pulsar_broker_throttled_connections", None, None, None, None, 0),
    ("pulsar_publish_rate_limit_times", TOPIC, None, None, None, 1),
    ("pulsar_publish_rate_limit_times", "persistent://t/ns/b", None, None, None, 1),
]
LABELS = ("metric", "topic", "reason", "limiter", "operation", "value")


def stored(rows: dict[str, list[dict[str, Any]]], name: str) -> pa.Table:
    schema = TABLES[name].schema
    switches = [("repeat_throttle", "replace")]
    return pa.Table.from_pylist(
        [{n: {"switches": switches, **r}.get(n) for n in schema.names} for r in rows[name]], schema
    )


def test_metrics_have_upstream_names_and_a_time_out_begins_a_pause(
    make_settings: MakeSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    warehouse, rows = make_settings().warehouse, traffic()
    for name in VIEWS["throttle_metrics"].reads:
        write_deltalake(f"{warehouse}/{name}", stored(rows, name))
    found = answer(capsys, warehouse, "SELECT * FROM throttle_metrics")
    assert sorted((tuple(r[c] for c in LABELS) for r in found), key=str) == sorted(METRICS, key=str)
    (pause,) = answer(capsys, warehouse, "SELECT * FROM throttle_intervals")
    assert pause["start_ms"] - T0 == 100  # the receipt was waited for
    assert pause["end_ms"] - T0 == 4_000


def test_spark_gives_the_same_rows(spark: SparkSession) -> None:
    rows = traffic()
    for name in VIEWS["throttle_metrics"].reads:
        spark.createDataFrame(stored(rows, name)).createOrReplaceTempView(name)
    found = [row.asDict() for row in spark.sql(VIEWS["throttle_metrics"].sql).collect()]
    assert sorted((tuple(r[c] for c in LABELS) for r in found), key=str) == sorted(METRICS, key=str)


MIB = 2**20
FACTS = (
    "throttle_intervals",
    "pause_culprits",
    "topic_pauses",
    "publish_limit_windows",
    "noisy_neighbour_victims",
    "incomplete_now",
    "clients_without_limit",
    "group_near_retention",
    "group_ahead",
    "group_state_spans",
)
"""Views of what alerts, findings and questions tell."""


def test_spark_tells_the_same_facts(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    warehouse = str(tmp_path / "warehouse")
    report_warehouse.fill(warehouse)
    near = {"messages": 5000, "min_balance_msgs": 0}
    write_windows(warehouse, [window(30 + minute, **near) for minute in range(12)])
    write(warehouse, "topic_throttle_stats", [window(50, topic="quiet", collateral_ns=30 * 10**9)])
    ahead = [lag("g", 60_000 * i, -3, state="ahead") for i in range(2)]
    late = {"age_s": 90, "age_state": "known", "limit_s": 100, "time_usage": 0.9}
    write(warehouse, "group_lag", [*ahead, lag("h", 0, 9, **late)])
    write(warehouse, "group_states", [changed("g", 60_000 * i, "ahead") for i in range(2)])
    write(warehouse, "client_usage", [usage(i, "ann", 4 * MIB * 60) for i in range(3)])
    write(warehouse, "client_quota_stats", [stats(i, "bob") for i in range(3)])
    for name in {table for view in FACTS for table in VIEWS[view].reads}:
        delta = Warehouse(warehouse).open(name)
        rows = TABLES[name].schema.empty_table() if delta is None else delta.to_pyarrow_table()
        spark.createDataFrame(rows).createOrReplaceTempView(name)
    for name in FACTS:
        expected = answer(capsys, warehouse, f"SELECT * FROM {name}")
        found = [json.loads(row) for row in spark.sql(VIEWS[name].sql).toJSON().collect()]
        columns = {c for row in expected for c in row} - {"event_date"}
        assert expected and len(found) == len(expected), name
        sides = [
            sorted(json.dumps([_near(row.get(c)) for c in sorted(columns)]) for row in rows)
            for rows in (expected, found)
        ]
        assert sides[0] == sides[1], name


def _near(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value
