"""The views on what clients are told, in DuckDB and in Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from app.cli import main
from app.config.settings import Settings
from app.tables.definitions import TABLES, VIEWS
from tests.support.views import PART, TOPIC, traffic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T0 = 1_767_621_600_000
R0, R1 = "TopicProduceQuotaExceeded", "ResourceGroupProduceQuotaExceeded"
MakeSettings = Callable[..., Settings]


def command(start: int, pause: int, **columns: Any) -> dict[str, Any]:
    """A command to producer 1 on connection c1 at T0 + `start`."""
    row = {
        "cluster": "c",
        "broker": "b1",
        "ts_mono_ns": start * 1_000_000,
        "ts_wall_ms": T0 + start,
        "row_no": 0,
        "rule": "bucket_empty",
        "switches": [("repeat_throttle", "replace")],
        "cnx_id": "c1",
        "producer_id": 1,
        "producer_name": "p",
        "topic": TOPIC,
        "partition": None,
        "reason": R0,
        "start_ms": T0 + start,
        "pause_ms": pause,
        "end_ms": T0 + start + pause,
        "request_id": start + 1,
        "exception": None,
        **columns,
    }
    return {name: row.get(name) for name in TABLES["producer_throttle"].schema.names}


def throttled(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Rows of `is_throttled` as (producer, topic, partition, start, end, reasons)."""
    return sorted(
        (
            (
                r["producer_name"],
                r["topic"],
                r["partition"],
                r["start_ms"] - T0,
                r["end_ms"] - T0,
                r["reasons"],
            )
            for r in rows
        ),
        key=str,
    )


CASES = {
    "apart": (
        [command(0, 100), command(200, 100)],
        [("p", TOPIC, None, 0, 100, [R0]), ("p", TOPIC, None, 200, 300, [R0])],
    ),
    "overlapping and touching": (
        [command(0, 100), command(50, 100, reason=R1), command(150, 50)],
        [("p", TOPIC, None, 0, 200, [R1, R0])],
    ),
    "cut by an unknown pause": (
        [command(0, 1000), command(400, 0, reason="BrokerProduceQuotaExceeded")],
        [("p", TOPIC, None, 0, 400, [R0])],
    ),
    "kept with max": (
        [command(s, p, switches=[("repeat_throttle", "max")]) for s, p in ((0, 1000), (400, 0))],
        [("p", TOPIC, None, 0, 1000, [R0])],
    ),
    "another producer cuts nothing": (
        [command(0, 1000), command(400, 0, producer_id=2, producer_name="q")],
        [("p", TOPIC, None, 0, 1000, [R0])],
    ),
    "partitions, each and together": (
        [
            command(0, 100, topic=f"{PART}0", partition=0),
            command(60, 100, topic=f"{PART}1", partition=1, producer_id=2, cnx_id="c2"),
        ],
        [
            ("p", PART[:-11], 0, 0, 100, [R0]),
            ("p", PART[:-11], 1, 60, 160, [R0]),
            ("p", PART[:-11], None, 0, 160, [R0]),
        ],
    ),
    "without a name": (
        [command(0, 100, producer_name=None), command(50, 100, producer_name=None, cnx_id="c2")],
        [(None, TOPIC, None, 0, 100, [R0]), (None, TOPIC, None, 50, 150, [R0])],
    ),
    "a send that timed out is none": (
        [command(0, 100, exception="ProducerThrottledException", rule="send_timeout")],
        [],
    ),
}


def answer(capsys: pytest.CaptureFixture[str], warehouse: str, sql: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["query", sql, "--warehouse", warehouse, "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("case", CASES)
def test_is_throttled(
    case: str, make_settings: MakeSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, expected = CASES[case]
    warehouse = make_settings().warehouse
    table = pa.Table.from_pylist(rows[::-1], TABLES["producer_throttle"].schema)
    write_deltalake(f"{warehouse}/producer_throttle", table)
    found = answer(capsys, warehouse, "SELECT * FROM is_throttled")
    assert throttled(found) == sorted(expected, key=str)


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
    for case, (commands, expected) in CASES.items():
        table = pa.Table.from_pylist(commands, TABLES["producer_throttle"].schema)
        spark.createDataFrame(table).createOrReplaceTempView("producer_throttle")
        got = [row.asDict() for row in spark.sql(VIEWS["is_throttled"].sql).collect()]
        assert throttled(got) == sorted(expected, key=str), case
