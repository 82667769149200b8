"""The audit of the producer id tables: what the core writes passes, each damage is named."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from app.quality.suites import SUITES
from tests.unit.docs.test_semantics_producer_ids import START_MS
from tests.unit.quality.evaluated import across, failures
from tests.unit.quality.producer_id_rows import rows_of

TABLES = ("producer_id_decisions", "producer_id_stats", "producer_id_owners")
DECISIONS, STATS, OWNERS = TABLES
SET, RANGE = "expect_column_values_to_be_in_set", "expect_column_values_to_be_between"
UNIQUE, KEY = "expect_compound_columns_to_be_unique", "cluster,broker,user,ts_wall_ms,row_no"
RULE = "a rule is that of its verdict"
TAKEN = "a filter that takes an id is there"
SLOWED = "what is throttled or rejected has a throttle time"
NEGATIVE = "only Q1 makes a throttle time negative"
STRICT = "strict rejects and permissive throttles"
COUNTS, OWNED = "a window counts its decisions", "every decision has a row of its owner"


def there(column: str, switch: str, value: str) -> tuple[str, None]:
    return f"{column} is there exactly with {switch}={value}", None


# Table, row, what is changed in it, the rules that find it (with their columns). The rows of the
# first cluster (strict, exact) come first; decision 5 is its first rejection.
DAMAGE: list[tuple[str, int, dict[str, Any], list[tuple[str, str | None]]]] = [
    (DECISIONS, 0, {"verdict": "passed"}, [(SET, "verdict")]),
    (DECISIONS, 0, {"rule": "counted"}, [(SET, "rule"), (RULE, None)]),
    (DECISIONS, 0, {"bound_source": "topic"}, [(SET, "bound_source")]),
    (DECISIONS, 0, {"bound_source": "none"}, [("without a policy there is no bound", None)]),
    (DECISIONS, 0, {"producer_id": -1}, [(RANGE, "producer_id")]),
    (DECISIONS, 0, {"bound": -1.0}, [(RANGE, "bound")]),
    (DECISIONS, 0, {"rate": -0.1}, [(RANGE, "rate")]),
    (DECISIONS, 0, {"rule": "unseen_over_bound"}, [(RULE, None)]),
    (DECISIONS, 0, {"recount": True}, [(RULE, None)]),
    (DECISIONS, 5, {"rule": "unseen_within_bound"}, [(RULE, None)]),
    (DECISIONS, 0, {"verdict": "throttled", "rule": "unseen_over_bound"}, [(STRICT, None)]),
    (DECISIONS, 0, {"throttle_ms": 1}, [("what is within its bound does not wait", None)]),
    (DECISIONS, 5, {"throttle_ms": 2**31}, [(RANGE, "throttle_ms")]),
    (DECISIONS, 5, {"throttle_ms": -1}, [(NEGATIVE, None)]),
    (
        DECISIONS,
        5,
        {"filter_created_ms": START_MS},
        [("an id has a filter unless it is rejected", None)],
    ),
    (
        DECISIONS,
        0,
        {"filter_created_ms": None},
        [("an id has a filter unless it is rejected", None)],
    ),
    (DECISIONS, 0, {"live_filters": 0}, [(TAKEN, None)]),
    (DECISIONS, 0, {"filter_created_ms": START_MS + 1}, [(TAKEN, None)]),
    (DECISIONS, 0, {"tokens": None}, [there("tokens", "quota_math", "token_bucket")]),
    (DECISIONS, 0, {"recount": None}, [there("recount", "membership", "exact")]),
    (STATS, 0, {"new_ids": -1}, [(RANGE, "new_ids")]),
    (STATS, 0, {"rejected": -1}, [(RANGE, "rejected"), (SLOWED, None)]),
    (STATS, 0, {"utilisation": -0.1}, [(RANGE, "utilisation")]),
    (STATS, 0, {"rejected": 0}, [(SLOWED, None)]),
    (STATS, 0, {"throttle_time_avg_ms": None}, [(SLOWED, None)]),
    (STATS, 0, {"throttle_time_avg_ms": -1.0}, [(NEGATIVE, None)]),
    (STATS, 0, {"state_bytes": 0}, [("filters have bytes", None)]),
    (STATS, 0, {"live_filters": 0}, [("filters have bytes", None)]),
    (STATS, 0, {"tokens": None}, [there("tokens", "quota_math", "token_bucket")]),
    (STATS, 0, {"filter_fill": 0.1}, [there("filter_fill", "membership", "bloom")]),
    (STATS, 0, {"estimated_fpp": 0.1}, [there("estimated_fpp", "membership", "bloom")]),
    (STATS, 0, {"rule": "closed"}, [("a window is written at its end", None)]),
    (
        STATS,
        0,
        {"window_ms": 59_999, "window_start_ms": START_MS + 1},
        [("windows are aligned to the epoch", None)],
    ),
    (STATS, -1, {"filter_fill": 1.5}, [(RANGE, "filter_fill")]),
    (OWNERS, 0, {"rule": "seen"}, [(SET, "rule")]),
    (OWNERS, 0, {"producer_id": -1}, [(RANGE, "producer_id")]),
]
"""Row -1 stands for the last one of the cluster west (permissive, bloom)."""


def last_of_west(table):
    return [row for row in rows_of(table) if row["cluster"] == "west"][-1]


def test_the_rows_of_these_tests_have_every_verdict_and_rule():
    rows = rows_of(DECISIONS)
    assert {r["verdict"] for r in rows} == {"counted", "throttled", "rejected"}
    assert {r["rule"] for r in rows} == {
        "unseen_within_bound",
        "unseen_over_bound",
        "rejected_over_bound",
        "recounted_after_disposal",
    }
    assert any(r["verdict"] == "rejected" and r["throttle_ms"] == 0 for r in rows)
    assert any(r["throttle_ms"] < 0 for r in rows)


@pytest.mark.parametrize("table", TABLES)
def test_what_the_core_writes_passes(table):
    assert failures(table, rows_of(table), SUITES[table]) == {}


@pytest.mark.parametrize("table", TABLES)
def test_each_damage_is_named_and_counted(table):
    """One damaged row per cluster, so that none explains another; the first row is repeated."""
    rows = rows_of(table)
    expected = Counter({(UNIQUE, KEY): 2})
    if table == STATS:
        expected[UNIQUE, "cluster,broker,user,window_start_ms"] = 2
    broken = [*rows, rows[0]]
    for number, (name, row, changes, found) in enumerate(DAMAGE):
        if name == table:
            whole = last_of_west(table) if row < 0 else rows[row]
            assert changes.keys() <= whole.keys()
            broken.append({**whole, **changes, "cluster": f"damaged-{number}"})
            expected.update(found)
    assert failures(table, broken, SUITES[table]) == expected


@pytest.mark.parametrize("table", [DECISIONS, STATS])
def test_what_the_core_writes_agrees_across_tables(table):
    assert across(table, rows_of(table), TABLES, rows_of) == {}


@pytest.mark.parametrize("table", [DECISIONS, STATS])
def test_tables_without_rows_agree(table):
    assert across(table, [], TABLES, lambda name: []) == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"new_ids": 4},
        {"rejected": 0},
        {"new_ids": 6, "rejected": 0},
    ],
)
def test_a_window_that_counts_otherwise_than_its_decisions_is_found(changes):
    first, *rest = rows_of(STATS)
    found = across(STATS, [{**first, **changes}, *rest], TABLES, rows_of)
    assert found == {(COUNTS, None): 1}


def test_a_lost_decision_is_missed_in_its_window_and_a_lost_window_is_not():
    lost = {DECISIONS: rows_of(DECISIONS)[1:]}
    assert across(STATS, rows_of(STATS), TABLES, rows_of, **lost) == {(COUNTS, None): 1}
    assert across(STATS, rows_of(STATS)[1:], TABLES, rows_of, **lost) == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"user": "bob"},
        {"producer_id": 99},
        {"rule": "assigned"},
        {"ts_wall_ms": START_MS + 1},
        {"broker": "b2"},
    ],
)
def test_a_decision_without_the_row_of_its_owner_is_found(changes):
    first, *rest = rows_of(OWNERS)
    changed = {OWNERS: [{**first, **changes}, *rest]}
    found = across(DECISIONS, rows_of(DECISIONS), TABLES, rows_of, **changed)
    assert found == {(OWNED, None): 1}
