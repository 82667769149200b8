"""The audit of the backlog tables: what the core writes passes, each damage is named."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from app.quality.suites import ACROSS, SUITES
from tests.unit.quality.backlog_rows import rows_of
from tests.unit.quality.evaluated import across, failures
from tests.unit.state.backlog_trace import T0

TABLES = ("backlog_checks", "backlog_evictions", "backlog_subscriptions", "producer_refusals")
CHECKS, EVICTIONS, SUBSCRIPTIONS, REFUSALS = TABLES
MINE = tuple(table for table in TABLES if table in ACROSS)
SET, RANGE = "expect_column_values_to_be_in_set", "expect_column_values_to_be_between"
UNIQUE, KEY = "expect_compound_columns_to_be_unique", "cluster,topic,ts_wall_ms,row_no"
INFO = "what is cached is there or is not, with its source"
STATE = "a known age has a time, and what is kept without an estimate"
AGE = "an age is that of its time; without one it is -1, or 0 where that is asked for"
POSITIONS = "positions are ledger:entry"
SIZE_USAGE, TIME_USAGE = "size_usage is size / limit", "time_usage is age / limit"
SIZE, TIME = "the size is exceeded from its limit on", "the age is exceeded beyond its limit"
ACTION = "what is exceeded is acted on by the policy of its quota"
RULE = "a rule says what is exceeded"
PRODUCERS = "only a disconnection has producers"
WHEN = "a check is written at its pass, at a whole second"
ENDS = "an eviction ends as its quota type does"
PHANTOM, COUNT = "a call is phantom if nothing was skipped", "a call counts once, on its first row"
STANDS, PLACED = "who stands still skips nothing", "a subscription has positions"
LARGER = "no backlog is larger afterwards"
FORECASTS, DRAINED = "forecasts are there together", "a backlog that falls is drained at its rate"
EMPTY = "without entries there is no age, and bytes only where they are acknowledged"
HOLE = "a hole is named beside acknowledged ranges, and nowhere else"
BACK = "a cursor that was set back has both positions"
REFUSED = "a rule is that of its quota"
EVICTED = "a check that evicts has its evictions"
CALLED = "every eviction has its check, with its size"
CHECKED = "a durable subscription with a backlog has its check, of its rule"

# Table, row, what is changed in it, the rules that find it (with their columns). The rows of the
# first cluster (estimated ages) come first: check 0 is within its limits, 1 disconnects, 3 has no
# estimate, 4 evicts.
DAMAGE: list[tuple[str, int, dict[str, Any], list[tuple[str, str | None]]]] = [
    (CHECKS, 0, {"rule": "over"}, [(SET, "rule"), (RULE, None)]),
    (CHECKS, 0, {"rule": "size_exceeded"}, [(RULE, None)]),
    (CHECKS, 1, {"rule": "deduplication_cursor"}, [(RULE, None)]),
    (CHECKS, 0, {"age_state": "young"}, [(SET, "age_state"), (STATE, None)]),
    (CHECKS, 0, {"age_state": "no_backlog"}, [(STATE, None)]),
    (CHECKS, 0, {"age_state": "no_estimate"}, [(STATE, None)]),
    (CHECKS, 3, {"age_state": "known"}, [(STATE, None)]),
    (CHECKS, 0, {"timestamp_source": "guess"}, [(SET, "timestamp_source")]),
    (CHECKS, 0, {"timestamp_source": "none"}, [(INFO, None)]),
    (CHECKS, 3, {"timestamp_source": "kept"}, [(INFO, None)]),
    (CHECKS, 0, {"oldest_subscription": None}, [(INFO, None)]),
    (CHECKS, 0, {"oldest_position": None}, [(INFO, None)]),
    (CHECKS, 0, {"oldest_position": "1"}, [(POSITIONS, None)]),
    (CHECKS, 0, {"action": "wait"}, [(SET, "action"), (ACTION, None)]),
    (CHECKS, 0, {"action": "evict_size"}, [(ACTION, None)]),
    (CHECKS, 1, {"action": "none", "producers_disconnected": 0}, [(ACTION, None)]),
    (CHECKS, 4, {"action": "evict_time"}, [(ACTION, None)]),
    (CHECKS, 0, {"retention_policy": "producer_exception"}, [(ACTION, None)]),
    (CHECKS, 1, {"retention_policy": None}, [(ACTION, None)]),
    (CHECKS, 1, {"retention_policy": "evict"}, [(SET, "retention_policy")]),
    (CHECKS, 0, {"limit_source_size": "user"}, [(SET, "limit_source_size")]),
    (CHECKS, 0, {"limit_source_time": "user"}, [(SET, "limit_source_time")]),
    (CHECKS, 0, {"producers_disconnected": 1}, [(PRODUCERS, None)]),
    (CHECKS, 1, {"producers_disconnected": -1}, [(RANGE, "producers_disconnected")]),
    (CHECKS, 0, {"backlog_bytes": -1}, [(RANGE, "backlog_bytes"), (SIZE_USAGE, None)]),
    (CHECKS, 0, {"limit_bytes": -1, "size_usage": None}, [(RANGE, "limit_bytes"), (SIZE, None)]),
    (CHECKS, 0, {"limit_s": -1, "time_usage": None}, [(RANGE, "limit_s")]),
    (CHECKS, 0, {"size_usage": 0.7}, [(SIZE_USAGE, None)]),
    (CHECKS, 0, {"size_usage": None}, [(SIZE_USAGE, None)]),
    (CHECKS, 0, {"limit_bytes": None}, [(SIZE_USAGE, None)]),
    (CHECKS, 0, {"time_usage": None}, [(TIME_USAGE, None)]),
    (CHECKS, 3, {"time_usage": 0.1}, [(TIME_USAGE, None)]),
    (CHECKS, 0, {"age_s": 301}, [(AGE, None), (TIME_USAGE, None)]),
    (CHECKS, 3, {"age_s": 0}, [(AGE, None)]),
    (CHECKS, 3, {"age_s": 5}, [(AGE, None)]),
    (CHECKS, 0, {"limit_bytes": 30_000, "size_usage": 1.0}, [(SIZE, None)]),
    (CHECKS, 1, {"exceeded_size": False, "rule": "within_limits"}, [(SIZE, None), (ACTION, None)]),
    (CHECKS, 1, {"exceeded_time": True, "rule": "size_masks_time"}, [(TIME, None)]),
    (CHECKS, 0, {"limit_s": 299, "time_usage": 300 / 299}, [(TIME, None)]),
    (CHECKS, 0, {"ts_wall_ms": T0 + 1}, [(WHEN, None)]),
    (EVICTIONS, 0, {"rule": "no_cursor"}, [(SET, "rule"), (ENDS, None)]),
    (EVICTIONS, 0, {"rule": "ledger_jump"}, [(ENDS, None)]),
    (EVICTIONS, 0, {"quota_type": "count"}, [(SET, "quota_type"), (ENDS, None)]),
    (EVICTIONS, 0, {"target_bytes": None}, [(ENDS, None)]),
    (EVICTIONS, 0, {"expire_older_than_s": 1}, [(ENDS, None)]),
    (EVICTIONS, 0, {"rounds": None}, [(ENDS, None)]),
    (EVICTIONS, 0, {"rounds": -1}, [(RANGE, "rounds")]),
    (EVICTIONS, 0, {"factor": 1.1}, [(RANGE, "factor")]),
    (EVICTIONS, 0, {"entries_skipped": -1}, [(RANGE, "entries_skipped")]),
    (EVICTIONS, 0, {"entries_skipped": 0}, [(PHANTOM, None)]),
    (EVICTIONS, 0, {"phantom": True}, [(PHANTOM, None)]),
    (EVICTIONS, 0, {"count_delta": 0}, [(COUNT, None)]),
    (EVICTIONS, 1, {"count_delta": 1}, [(COUNT, None)]),
    (EVICTIONS, 0, {"to_position": "3:4"}, [(STANDS, None)]),
    (EVICTIONS, 0, {"to_position": None}, [(PLACED, None)]),
    (EVICTIONS, 0, {"subscription": None}, [(PLACED, None)]),
    (EVICTIONS, 0, {"from_position": "three"}, [(POSITIONS, None)]),
    (EVICTIONS, 0, {"backlog_after": 12_501}, [(LARGER, None)]),
    (SUBSCRIPTIONS, 0, {"rule": "checked"}, [(SET, "rule")]),
    (SUBSCRIPTIONS, 0, {"mark_delete": "3"}, [(POSITIONS, None)]),
    (SUBSCRIPTIONS, 0, {"backlog_entries": -1}, [(RANGE, "backlog_entries")]),
    (SUBSCRIPTIONS, 0, {"backlog_entries": 0}, [(EMPTY, None)]),
    (SUBSCRIPTIONS, 0, {"backlog_bytes": 0, "backlog_entries": 0, "age_s": 4}, [(EMPTY, None)]),
    (SUBSCRIPTIONS, 0, {"kind": "reader"}, [(SET, "kind")]),
    (SUBSCRIPTIONS, 0, {"unacked_ranges": 2}, [(HOLE, None)]),
    (SUBSCRIPTIONS, 0, {"first_hole": "1:2"}, [(HOLE, None)]),
    (SUBSCRIPTIONS, 0, {"set_back": True}, [(BACK, None)]),
    (SUBSCRIPTIONS, 0, {"expired_unread": -1}, [(RANGE, "expired_unread")]),
    (SUBSCRIPTIONS, 0, {"drain_rate": 0.0}, [(FORECASTS, None)]),
    (SUBSCRIPTIONS, 0, {"time_to_drain_s": 1.0}, [(FORECASTS, None)]),
    (SUBSCRIPTIONS, 0, {"time_to_quota_s": 1.0}, [(FORECASTS, None)]),
    (SUBSCRIPTIONS, 6, {"time_to_quota_s": -1.0}, [(RANGE, "time_to_quota_s")]),
    (SUBSCRIPTIONS, 6, {"durable": False}, [(FORECASTS, None)]),
    (SUBSCRIPTIONS, 10, {"time_to_drain_s": 100.0}, [(DRAINED, None)]),
    (SUBSCRIPTIONS, 0, {"pass_ms": T0 + 1}, [(WHEN, None)]),
    (REFUSALS, 0, {"quota_type": "time"}, [(REFUSED, None)]),
    (REFUSALS, 0, {"error": "ProducerFencedException"}, [(SET, "error")]),
    (REFUSALS, 0, {"producer_id": -1}, [(RANGE, "producer_id")]),
]
OWN_KEYS = {
    CHECKS: "cluster,topic,pass_ms",
    EVICTIONS: "cluster,topic,ts_wall_ms,subscription",
    SUBSCRIPTIONS: "cluster,topic,subscription,pass_ms",
}


def test_the_rows_of_these_tests_have_most_of_what_there_is():
    checks, evictions = rows_of(CHECKS), rows_of(EVICTIONS)
    assert {r["action"] for r in checks} == {
        "none",
        "deduplication_snapshot",
        "disconnect_producers",
        "evict_size",
        "evict_time",
    }
    assert {r["rule"] for r in checks} == {
        "within_limits",
        "size_exceeded",
        "time_exceeded",
        "size_masks_time",
        "deduplication_cursor",
    }
    assert {r["age_state"] for r in checks} == {"known", "no_backlog", "no_estimate"}
    assert {r["rule"] for r in evictions} == {"same_cursor", "expired", "ledger_jump"}
    assert {r["durable"] for r in rows_of(SUBSCRIPTIONS)} == {True, False}
    assert rows_of(SUBSCRIPTIONS)[6]["time_to_quota_s"] is not None
    assert rows_of(SUBSCRIPTIONS)[10]["time_to_drain_s"] is not None


@pytest.mark.parametrize("table", TABLES)
def test_what_the_core_writes_passes(table):
    assert failures(table, rows_of(table), SUITES[table]) == {}


@pytest.mark.parametrize("table", TABLES)
def test_each_damage_is_named_and_counted(table):
    """One damaged row per cluster, so that none explains another; the first row is repeated."""
    rows = rows_of(table)
    expected = Counter({(UNIQUE, KEY): 2})
    if table in OWN_KEYS:
        expected[UNIQUE, OWN_KEYS[table]] = 2
    broken = [*rows, rows[0]]
    for number, (name, row, changes, found) in enumerate(DAMAGE):
        if name == table:
            assert changes.keys() <= rows[row].keys()
            broken.append({**rows[row], **changes, "cluster": f"damaged-{number}"})
            expected.update(found)
    assert failures(table, broken, SUITES[table]) == expected


@pytest.mark.parametrize("table", MINE)
def test_what_the_core_writes_agrees_across_tables(table):
    assert across(table, rows_of(table), TABLES, rows_of) == {}


@pytest.mark.parametrize("table", MINE)
def test_tables_without_rows_agree(table):
    assert across(table, [], TABLES, lambda name: []) == {}


def test_a_lost_eviction_is_missed_at_its_check():
    lost = {EVICTIONS: rows_of(EVICTIONS)[2:]}
    assert across(CHECKS, rows_of(CHECKS), TABLES, rows_of, **lost) == {(EVICTED, None): 1}


@pytest.mark.parametrize(
    "changes",
    [
        {"action": "evict_time"},
        {"action": "disconnect_producers"},
        {"backlog_bytes": 12_501},
        {"pass_ms": T0 + 1000},
        {"topic": "persistent://t/a/z"},
    ],
)
def test_an_eviction_without_its_check_is_found(changes):
    rows = rows_of(CHECKS)
    rows[4] |= changes
    found = across(EVICTIONS, rows_of(EVICTIONS), TABLES, rows_of, backlog_checks=rows)
    assert found == {(CALLED, None): 2}


@pytest.mark.parametrize("changes", [{"rule": "size_exceeded"}, {"pass_ms": T0 + 1000}])
def test_a_subscription_without_its_check_is_found(changes):
    rows = rows_of(CHECKS)
    rows[0] |= changes
    found = across(SUBSCRIPTIONS, rows_of(SUBSCRIPTIONS), TABLES, rows_of, backlog_checks=rows)
    assert found == {(CHECKED, None): 2}
