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
from state.engine.reach import Reach
from tests.unit.state.producer_id_trace import blob, numbered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T0 = 1_767_621_600_000
NAME = "producer_id_metrics"


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
    first = operator.job.step(None, [blob(numbered(records))], Reach(0))
    last = operator.job.step(first.state, [], Reach(T0 + 120_000))
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


def test_metrics_have_the_names_of_the_proposal(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = by_duckdb(settings, "producer_id_metrics", capsys)
    assert {r["metric"] for r in rows} == {"kafka.server:type=ProducerIds"}
    values = {(r["user"], r["attribute"]): r["value"] for r in rows}
    assert values["alice", "throttle-time"] == 0
    assert values["alice", "rate"] > 0
    assert {a for _, a in values} == {"rate", "tokens", "throttle-time"}


def test_spark_gives_the_same_rows(
    settings: Settings, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    for table in VIEWS[NAME].reads:
        spark.read.format("delta").load(path_in(settings.location, table)).createOrReplaceTempView(
            table
        )
    rows = [row.asDict() for row in spark.sql(VIEWS[NAME].sql).collect()]
    assert sorted(rows, key=str) == by_duckdb(settings, NAME, capsys)
    assert rows
    assert pa.Table.from_pylist(rows).num_rows == len(rows)
