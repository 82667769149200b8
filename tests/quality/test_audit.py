"""The audit: a sound warehouse passes, each kind of damage is named and counted."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from app.quality.audit import audit, quality_command
from app.quality.suites import ACROSS, SUITES
from app.warehouse import Warehouse
from tests.throttle_rows import OTHER, event, frame, window, write

GOOD = [
    event(100, "mark"),
    event(101, "mark", transition="TypeStateChanged", waiting=2),
    event(300, "unmark", transition="TypeStateChanged", reads_paused=True, waiting=1),
    event(300, "unmark", row_no=1),
]
PAUSED = {"limited_times": 3, "culprit_times": 2, "collateral_times": 1,
          "limited_by_limiter": [("topic", 2), ("broker", 1)]}
WINDOWS = [window(0, **PAUSED), window(1), window(1, topic=OTHER, row_no=1)]


def failures(found):
    return [(r["expectation"], r["column"], r["unexpected_count"]) for r in found
            if not r["success"]]


def test_a_sound_warehouse_passes_and_every_result_is_kept(spark, tmp_warehouse, capsys):
    write(tmp_warehouse, "throttle_events", GOOD)
    write(tmp_warehouse, "topic_throttle_stats", WINDOWS)
    warehouse = Warehouse(tmp_warehouse)
    assert quality_command(spark, warehouse) == 0
    checks = {table: len(suite) + len(ACROSS.get(table, [])) for table, suite in SUITES.items()}
    assert capsys.readouterr().out == "".join(
        f"{table}: {n} of {n} expectations hold\n" for table, n in checks.items()
    )
    kept = warehouse.open("quality_results").to_pyarrow_table()
    assert kept.num_rows == sum(checks.values())
    assert len(set(kept["run_id"].to_pylist())) == 1
    assert set(kept["success"].to_pylist()) == {True}


def test_a_broken_warehouse_fails_and_the_answer_names_each_rule(spark, tmp_warehouse, capsys):
    write(tmp_warehouse, "throttle_events", [
        *GOOD,
        event(300, "unmark", row_no=1),
        event(500, "hold", rule="bucket_empty", balance_msgs=7, pause_model_ns=-1),
    ])
    write(tmp_warehouse, "topic_throttle_stats", [
        window(0, **{**PAUSED, "culprit_times": 5}), window(1, window_start_ms=1, messages=None),
    ])
    assert quality_command(spark, Warehouse(tmp_warehouse), as_json=True) == 1
    answer = json.loads(capsys.readouterr().out)
    assert failures([r for r in answer if r["table"] == "throttle_events"]) == [
        ("expect_compound_columns_to_be_unique", "cluster,broker,ts_wall_ms,ts_mono_ns,row_no", 2),
        ("expect_column_values_to_be_in_set", "action", 1),
        ("expect_column_values_to_be_between", "pause_model_ns", 1),
        ("an empty bucket has a balance of 0 or less", None, 1),
        ("every unmark has its mark", None, 1),
    ]
    assert failures([r for r in answer if r["table"] == "topic_throttle_stats"]) == [
        ("expect_column_values_to_not_be_null", "messages", 1),
        ("limited_times is culprit_times and collateral_times", None, 1),
        ("windows are aligned to the epoch", None, 1),
    ]


@pytest.mark.parametrize("change", ["dropped", "retyped"])
def test_a_column_that_is_missing_or_of_another_type_is_found(spark, change):
    rows = frame("throttle_events", GOOD).drop_columns(["waiting"])
    if change == "retyped":
        column = pa.array([1, 2, 1, 0], pa.int64())
        rows = rows.add_column(27, "waiting", column)
    found = audit(spark.createDataFrame(rows), "throttle_events", SUITES["throttle_events"])
    failed = {(name, column) for name, column, _ in failures(found)}
    assert ("expect_column_values_to_be_of_type", "waiting") in failed
    ordered = ("expect_table_columns_to_match_ordered_list", None)
    assert (ordered in failed) == (change == "dropped")


def test_tables_that_have_no_rows_yet_pass(spark, tmp_path):
    (tmp_path / "_weir").mkdir()
    assert quality_command(spark, Warehouse(str(tmp_path))) == 0
