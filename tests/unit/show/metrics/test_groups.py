"""Metrics of Kafka groups: the largest partitions have series, the rest of a group is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb

from app.jobs.backlog.metrics.groups import Groups
from app.show.metrics.entities import Bounds

_TABLES = """
CREATE OR REPLACE TABLE group_lag (cluster VARCHAR, "group" VARCHAR, topic VARCHAR,
  partition INTEGER, pass_ms BIGINT, row_no INTEGER, state VARCHAR, lag BIGINT, age_s BIGINT,
  time_to_loss_s DOUBLE, time_usage DOUBLE, age_state VARCHAR, log_start BIGINT, log_end BIGINT);
CREATE OR REPLACE TABLE lost_messages (cluster VARCHAR, "group" VARCHAR, topic VARCHAR,
  offsets BIGINT);
CREATE OR REPLACE TABLE group_states (cluster VARCHAR, "group" VARCHAR, topic VARCHAR,
  pass_ms BIGINT, ts_wall_ms BIGINT, row_no INTEGER, state VARCHAR)
"""


def took(
    part: Groups,
    rows: list[tuple[Any, ...]],
    lost: Sequence[tuple[Any, ...]] = (),
    states: Sequence[tuple[Any, ...]] = (),
) -> None:
    fresh = duckdb.connect()
    fresh.execute(_TABLES)
    for group, partition, at, state, lag, *more in rows:
        age, left, used, known = more or (None, None, None, None)
        fresh.execute(
            "INSERT INTO group_lag VALUES ('east', ?, 't', ?, ?, 0, ?, ?, ?, ?, ?, ?, 0, 9)",
            [group, partition, at, state, lag, age, left, used, known],
        )
    for row in lost:
        fresh.execute("INSERT INTO lost_messages VALUES ('east', ?, 't', ?)", list(row))
    for row in states:
        fresh.execute("INSERT INTO group_states VALUES ('east', ?, ?, ?, 0, 0, ?)", list(row))
    part.take(fresh)


def shown(part: Groups) -> dict[tuple[str, ...], float]:
    return {(name, *labels[1:]): value for name, labels, value in part.samples()}


def test_the_largest_have_series_and_sums_hold() -> None:
    part = Groups(Bounds(2, 1000))
    took(
        part,
        [
            ("g", 0, 1, "committed", 50, 7, 93.0, 0.07, "known"),
            ("g", 1, 1, "committed", 5),
            ("g", 2, 1, "committed", 4),
            ("h", 0, 1, "ahead", -9),
            ("n", 0, 1, "no_offset", None),
        ],
        [("g", 3)],
    )
    found = shown(part)
    assert found == {
        ("weir_group_lag", "g", "t", "0"): 50,
        ("weir_group_lag", "g", "t", "1"): 5,
        ("weir_group_lag", "g", "other", ""): 4,
        ("weir_group_lag", "h", "other", ""): 0,
        ("weir_group_lag_seconds", "g", "t", "0"): 7,
        ("weir_group_time_to_loss_seconds", "g", "t", "0"): 93.0,
        ("weir_group_retention_used_ratio", "g", "t", "0"): 0.07,
        ("weir_group_lost_offsets_total", "g", "t"): 3.0,
        ("weir_group_partitions", "committed"): 3,
        ("weir_group_partitions", "ahead"): 1,
        ("weir_group_partitions", "no_offset"): 1,
    }


def test_what_is_gone_has_no_series_and_a_loss_stays_counted() -> None:
    part = Groups(Bounds(9, 1000))
    took(part, [("g", 0, 1, "committed", 50), ("h", 0, 1, "committed", 6)], [("g", 3)])
    took(part, [("g", 0, 2, "gone", None), ("h", 0, 2, "committed", 0)], [("g", 4)])
    assert shown(part) == {
        ("weir_group_lag", "h", "t", "0"): 0,
        ("weir_group_lost_offsets_total", "g", "t"): 7.0,
        ("weir_group_lost_offsets_total", "h", "t"): 0.0,
        ("weir_group_partitions", "committed"): 1,
    }


def test_the_state_of_a_group_is_its_newest_one() -> None:
    part = Groups(Bounds(2, 1000))
    took(
        part,
        [
            ("g", 0, 1, "committed", 50),
            ("h", 0, 1, "committed", 6),
            ("small", 0, 1, "committed", 1),
        ],
        states=[
            ("g", None, 2, "empty"),
            ("g", None, 1, "stable"),
            ("g", "t", 3, "gone"),
            ("h", None, 1, "stable"),
            ("small", None, 1, "stable"),
        ],
    )

    def states() -> dict[tuple[str, ...], float]:
        found = shown(part).items()
        return {key[1:]: value for key, value in found if key[0] == "weir_group_state"}

    assert states() == {("g", "empty"): 1, ("h", "stable"): 1}
    took(part, [], states=[("g", None, 4, "rebalancing"), ("h", None, 4, "known")])
    assert states() == {("g", "rebalancing"): 1}
