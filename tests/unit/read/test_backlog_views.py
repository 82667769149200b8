"""The views on backlogs, in DuckDB and in Spark, against the reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import write_deltalake
from hypothesis import HealthCheck, given, settings

from app.config.settings import Settings
from app.engine.operators import operators
from app.tables.definitions import TABLES, VIEWS
from app.tables.shape import shaped
from app.tables.small_files import path_in
from state.engine.reach import Reach
from state.jobs import DECLARED
from tests.reference.backlog import age_of, topic_stats
from tests.reference.policies import namespace_of
from tests.support.backlog_views import READS, Rows, asked, stored
from tests.unit.state.backlog_trace import (
    EVICTION,
    T0,
    blob,
    cursor,
    entry,
    ledger,
    numbered,
    play,
    quota,
)
from tests.unit.state.backlog_traces import Trace, traces

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATS, METRICS = NAMES = ("backlog_topic_stats", "backlog_metrics")
EVICTED = "pulsar_storage_backlog_quota_exceeded_evictions_total"
BROKER_EVICTED = "pulsar_broker_storage_backlog_quota_exceeded_evictions_total"

CHECKED = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def judged(trace: Trace, age_reading: str) -> dict[str, Rows]:
    """The two tables that the views read, by the core."""
    params = {**trace.params, "age_reading": age_reading}
    rows = play([numbered(trace.records)], params, trace.configured, trace.end_ms + 1)
    switches = [(name, str(params.get(name))) for name in sorted(DECLARED["backlog"].switches)]
    about = {"job": "backlog", "params_hash": "abc", "switches": switches}
    return {table: [{**row, **about} for row in rows.get(table, [])] for table in READS}


def metrics_of(tables: dict[str, Rows], age_reading: str) -> Counter[tuple[Any, ...]]:
    """The metrics by the reference: name, kind, labels and value. Topics are judged one by one:
    the whole of a partitioned topic has no metrics."""
    checks, found = tables["backlog_checks"], Counter[tuple[Any, ...]]()
    last = {(r["cluster"], r["topic"]): r for r in sorted(checks, key=lambda r: r["pass_ms"])}
    newest = max((r["pass_ms"] for r in checks), default=0)
    for (cluster, topic), row in last.items():
        labels = (cluster, namespace_of(topic), topic, None)
        at_ms = row["oldest_timestamp_ms"]
        is_live = age_reading == "live" and at_ms is not None
        for metric, value in {
            "size": row["backlog_bytes"],
            "quota_limit": -1 if row["limit_bytes"] is None else row["limit_bytes"],
            "quota_limit_time": -1 if row["limit_s"] is None else row["limit_s"],
            "age_seconds": age_of(newest, at_ms) if is_live else row["age_s"],
        }.items():
            found[f"pulsar_storage_backlog_{metric}", "gauge", *labels, value] += 1
    counts: Counter[tuple[Any, ...]] = Counter()
    nothing = [
        {"cluster": cluster, "topic": topic, "quota_type": kind, "count_delta": 0}
        for cluster, topic in last
        for kind in ("size", "time")
    ]
    for row in [*nothing, *tables["backlog_evictions"]]:
        cluster, topic, kind = row["cluster"], row["topic"], row["quota_type"]
        namespace = namespace_of(topic)
        for labels in (
            (EVICTED, cluster, namespace, topic, kind),
            (EVICTED, cluster, namespace, None, kind),
            (BROKER_EVICTED, cluster, None, None, kind),
        ):
            counts[labels] += row["count_delta"]
    for (metric, *labels), value in counts.items():
        found[metric, "counter", *labels, value] += 1
    return found


def compare(tables: dict[str, Rows], age_reading: str) -> None:
    expected = topic_stats(tables["backlog_checks"], age_reading)
    rows = asked(tables, STATS)
    for row in rows:
        assert row.pop("pass_ms") in {r["pass_ms"] for r in tables["backlog_checks"]}
    assert sorted(rows, key=lambda r: (r["cluster"], r["topic"])) == expected
    got = Counter(
        (
            r["metric"],
            r["kind"],
            r["cluster"],
            r["namespace"],
            r["topic"],
            r["quota_type"],
            r["value"],
        )
        for r in asked(tables, METRICS)
    )
    assert got == metrics_of(tables, age_reading)


@CHECKED
@given(traces(most=100, least=30))
def test_duckdb_and_the_reference_agree_on_random_traces(trace: Trace) -> None:
    for age_reading in ("live", "last_check"):
        compare(judged(trace, age_reading), age_reading)


def test_tables_without_rows_have_no_stats() -> None:
    assert asked({table: [] for table in READS}, STATS) == []
    assert asked({table: [] for table in READS}, METRICS) == []


def partition(number: int, records: Rows) -> Rows:
    return [{**r, "topic": f"persistent://t/a/p-partition-{number}"} for r in records]


RECORDS = numbered(
    sorted(
        [
            *partition(
                2,
                [
                    ledger(0, 1, 10, 1000, T0 - 9000),
                    ledger(0, 2, 5, 500),
                    cursor(0, "young", "1:4", publish_time_ms=T0 - 8000),
                ],
            ),
            *partition(
                10,
                [
                    ledger(0, 1, 10, 1000, T0 - 9000),
                    ledger(0, 2, 5, 500),
                    cursor(0, "old", "1:-1", publish_time_ms=T0 - 90_000),
                ],
            ),
            *partition(3, [ledger(0, 1, 0, 0), cursor(0, "none", "1:-1")]),
            *[
                {**r, "topic": "persistent://t/a/p"}
                for r in (ledger(0, 1, 1, 7), cursor(0, "own", "1:-1"))
            ],
            ledger(0, 1, 10, 1000),
            cursor(0, "s", "1:2", publish_time_ms=T0 - 5500),
            entry(2000, 1, 10),
        ],
        key=lambda r: r["ts_wall_ms"],
    )
)


@pytest.fixture
def warehouse(make_settings: Callable[..., Settings], tmp_path: Path) -> Settings:
    """A warehouse with a partitioned topic and one that is not, with evictions of both types."""
    config = make_settings(
        backlog={
            "preciseTimeBasedBacklogQuotaCheck": True,
            "check_rows": "all",
            "backlogQuotaCheckIntervalInSeconds": 1,
            "eviction_count_rule": "every_call",
        },
        policies=[
            {"scope": "topic", "name": "t/a/x", "limits": quota(800, 60, EVICTION)},
            {"scope": "namespace", "name": "t/a", "limits": quota(None, 30, EVICTION)},
        ],
    )
    operator = operators(config, ["backlog"])["backlog"]
    first = operator.job.step(None, [blob(RECORDS)], Reach(0))
    last = operator.job.step(first.state, [], Reach(T0 + 4500))
    for step in (first, last):
        for name, rows in step.tables.items():
            write_deltalake(
                path_in(config.location, name),
                shaped(rows, TABLES[name], operator.constants),
                mode="append",
            )
    return config


def test_a_topic_beside_its_partitions_is_one_of_them(warehouse: Settings) -> None:
    tables = stored(warehouse)
    rows = [r for r in asked(tables, STATS) if r["topic"] == "persistent://t/a/p"]
    assert [
        (r["oldestBacklogMessageAgeSeconds"], r["oldestBacklogMessageSubscriptionName"])
        for r in rows
    ] == [(94, "old")]
    own = {
        r["metric"]: r["value"]
        for r in asked(tables, METRICS)
        if r["topic"] == "persistent://t/a/p" and r["kind"] == "gauge"
    }
    assert own == {
        "pulsar_storage_backlog_size": 7,
        "pulsar_storage_backlog_age_seconds": 4,
        "pulsar_storage_backlog_quota_limit": -1,
        "pulsar_storage_backlog_quota_limit_time": 30,
    }


def test_a_partitioned_topic_has_the_age_and_the_name_of_its_oldest_partition(
    warehouse: Settings,
) -> None:
    tables = stored(warehouse)
    compare(tables, "live")
    rows = {r["topic"].rpartition("/")[2]: r for r in asked(tables, STATS)}
    assert set(rows) == {"x", "p", "p-partition-2", "p-partition-3", "p-partition-10"}
    assert {
        name: (r["oldestBacklogMessageAgeSeconds"], r["oldestBacklogMessageSubscriptionName"])
        for name, r in rows.items()
    } == {
        "x": (9, "s"),
        "p": (94, "old"),
        "p-partition-2": (12, "young"),
        "p-partition-3": (-1, None),
        "p-partition-10": (94, "old"),
    }
    assert [rows[n]["backlogQuotaLimitSize"] for n in ("x", "p")] == [800, -1]
    assert [rows[n]["backlogQuotaLimitTime"] for n in ("x", "p")] == [60, 30]
    counts = {
        (r["metric"], r["topic"] and r["topic"].rpartition("/")[2], r["quota_type"]): r["value"]
        for r in asked(tables, METRICS)
        if r["kind"] == "counter"
    }
    zero = {
        (EVICTED, topic, kind): 0
        for topic in {
            r.rpartition("/")[2] for r in (row["topic"] for row in tables["backlog_checks"])
        }
        for kind in ("size", "time")
    }
    assert counts == zero | {
        (EVICTED, "x", "size"): 3,
        (EVICTED, "p-partition-10", "time"): 5,
        (EVICTED, None, "size"): 3,
        (EVICTED, None, "time"): 5,
        (BROKER_EVICTED, None, "size"): 3,
        (BROKER_EVICTED, None, "time"): 5,
    }


def test_the_age_of_a_topic_grows_until_the_newest_check_of_any_other(warehouse: Settings) -> None:
    tables = stored(warehouse)
    tables["backlog_checks"] = [
        row
        for row in tables["backlog_checks"]
        if not row["topic"].endswith("/x") or row["pass_ms"] <= T0 + 1000
    ]
    compare(tables, "live")


@pytest.mark.parametrize("name", NAMES)
def test_spark_gives_the_same_rows(name: str, warehouse: Settings, spark: SparkSession) -> None:
    for table in VIEWS[name].reads:
        path = path_in(warehouse.location, table)
        spark.read.format("delta").load(path).createOrReplaceTempView(table)
    rows = [row.asDict() for row in spark.sql(VIEWS[name].sql).collect()]
    assert sorted(rows, key=str) == sorted(asked(stored(warehouse), name), key=str)
    assert rows
