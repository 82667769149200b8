"""The views on producer ids, in DuckDB and in Spark."""

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
from app.engine.operators import operators
from app.tables.definitions import TABLES, VIEWS
from app.tables.shape import shaped
from app.tables.small_files import path_in
from tests.unit.state.producer_id_trace import blob, numbered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T0 = 1_767_621_600_000
NAMES = ("producer_id_owner", "producer_id_distinct", "producer_id_metrics")


def record(at_s: int, user: str, pid: int, kind: str = "produce_batch", **columns: Any) -> Any:
    return {
        "event_type": kind,
        "source_feed": "f",
        "cluster": "c",
        "broker": "1",
        "ts_wall_ms": T0 + 1000 * at_s,
        "principal": f"User:{user}",
        "client_id": "x",
        "topic": "orders",
        "partition": 0,
        "producer_id": pid,
        **columns,
    }


@pytest.fixture
def settings(make_settings: Callable[..., Settings], tmp_path: Path) -> Settings:
    """A warehouse with what an exact run says: W = 20 s, so ids are counted again after 30 s."""
    config = make_settings(
        producer_ids={"membership": "exact", "producer.id.quota.window.size.seconds": 20},
        policies=[{"scope": "user", "name": "bob", "limits": {"producer_ids_rate": 0}}],
    )
    records = [
        *(record(s, "alice", 1) for s in range(0, 120, 5)),
        record(10, "alice", 2),
        record(70, "alice", 3),
        record(15, "bob", 3, client_id=None),
        record(16, "bob", 4),
        record(80, "carol", 3, "producer_id_assigned"),
    ]
    operator = operators(config, ["producer_ids"])["producer_ids"]
    first = operator.job.step(None, [blob(numbered(records))], 0)
    last = operator.job.step(first.state, [], T0 + 120_000)
    for step in (first, last):
        for name, rows in step.tables.items():
            write_deltalake(
                path_in(config.location, name),
                shaped(rows, TABLES[name], operator.constants),
                mode="append",
            )
    return config


def by_duckdb(
    settings: Settings, name: str, capsys: pytest.CaptureFixture[str]
) -> list[dict[str, Any]]:
    assert (
        main(["query", f"SELECT * FROM {name}", "--warehouse", settings.warehouse, "--json"]) == 0
    )
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return sorted(rows, key=str)


def test_the_latest_row_of_an_id_is_its_owner(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = by_duckdb(settings, "producer_id_owner", capsys)
    assert {r["producer_id"]: r["user"] for r in rows} == {
        1: "alice",
        2: "alice",
        3: "carol",
        4: "bob",
    }


def test_counted_ids_are_split_into_new_and_recounted_ones(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [r for r in by_duckdb(settings, "producer_id_distinct", capsys) if r["user"] == "alice"]
    assert [r["window_start_ms"] - T0 for r in rows] == [0, 60_000]
    assert [r["counted_ids"] for r in rows] == [
        r["distinct_ids"] + r["recounted_ids"] for r in rows
    ]
    assert [r["distinct_ids"] for r in rows] == [2, 1]
    assert all(r["recounted_ids"] for r in rows)  # id 1 never rests, and is counted every 30 s


def test_rejected_ids_are_none_that_the_quota_counted(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = by_duckdb(settings, "producer_id_distinct", capsys)
    (bob,) = (r for r in rows if r["user"] == "bob" and r["window_start_ms"] == T0)
    assert [bob[c] for c in ("counted_ids", "distinct_ids", "recounted_ids")] == [1, 1, 0]


def test_metrics_have_the_names_of_the_proposal(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = by_duckdb(settings, "producer_id_metrics", capsys)
    assert {r["metric"] for r in rows} == {"kafka.server:type=ProducerIds"}
    values = {(r["user"], r["attribute"]): r["value"] for r in rows}
    assert values["alice", "throttle-time"] == 0
    assert values["alice", "rate"] > 0
    assert {a for _, a in values} == {"rate", "tokens", "throttle-time"}


@pytest.mark.parametrize("name", NAMES)
def test_spark_gives_the_same_rows(
    name: str, settings: Settings, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    for table in VIEWS[name].reads:
        spark.read.format("delta").load(path_in(settings.location, table)).createOrReplaceTempView(
            table
        )
    rows = [row.asDict() for row in spark.sql(VIEWS[name].sql).collect()]
    assert sorted(rows, key=str) == by_duckdb(settings, name, capsys)
    assert rows
    assert pa.Table.from_pylist(rows).num_rows == len(rows)
