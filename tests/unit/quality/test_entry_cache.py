"""The audit of the cache tables: what the core writes passes, each kind of damage is named."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from app.quality.suites import SUITES
from tests.unit.quality.cache_rows import rows_of
from tests.unit.quality.evaluated import across, failures

TABLES = ("cache_stats", "cache_evictions", "cache_reads")
STATS, EVICTIONS, READS = TABLES
SET, RANGE = "expect_column_values_to_be_in_set", "expect_column_values_to_be_between"
UNIQUE, KEY = "expect_compound_columns_to_be_unique", "cluster,broker,ts_wall_ms,ts_mono_ns,row_no"
RATIO, EMPTY = "hit_ratio is hits / reads", "an empty cache has no bytes"
OF_BROKER = "only a broker's row has what only a broker has"
LEVELS = "what is wanted is not evictable, and what is used holds both"
WANTED = "no more is evicted wanted than is evicted"
MOST = "the most used bytes of a window are not below those at its end"
TRIGGER = "a cache ends its window within its trigger"
END, ALIGNED = "a window is written at its end", "windows are aligned to the epoch"
SUM, FLOW = "a broker's row is the sum of its topics", "a cache holds what came in and has not left"
RULE = "a rule is its cause, with what was amiss"
PART = "an entry is part of what was used"
CHECKED = "nothing goes by size without a size check"
ABOVE = "what goes by size goes above the trigger"
HIT, POSITION = "a rule says whether it was a hit", "positions are ledger:entry"
READ = "hits and misses are the reads of the window"
COUNTED = "a window counts its evictions"

# Table, row, what is changed in it, the rules that find it (with their columns). Row 0 of the
# statistics is the first cache's (600 bytes) for its broker, row 1 that of one of its topics; the
# first entry that is evicted goes by size with reads expected, the first read is a miss.
DAMAGE: list[tuple[str, int, dict[str, Any], list[tuple[str, str | None]]]] = [
    (STATS, 0, {"policy": "random"}, [(SET, "policy")]),
    (STATS, 0, {"job": "backlog"}, [(SET, "job")]),
    (STATS, 0, {"row_no": -1}, [(RANGE, "row_no")]),
    (STATS, 0, {"inserted": -1}, [(RANGE, "inserted")]),
    (STATS, 0, {"hit_ratio": 0.5}, [(RATIO, None)]),
    (STATS, 0, {"hit_ratio": None}, [(RATIO, None)]),
    (STATS, 0, {"hit_ratio": 1.5}, [(RANGE, "hit_ratio"), (RATIO, None)]),
    (STATS, 0, {"passes_size": None}, [(OF_BROKER, None)]),
    (STATS, 1, {"max_used_bytes": 600}, [(OF_BROKER, None)]),
    (STATS, 0, {"wanted_bytes": 401}, [(LEVELS, None)]),
    (STATS, 0, {"non_evictable_bytes": 401}, [(LEVELS, None)]),
    (STATS, 0, {"entries": 0}, [(EMPTY, None)]),
    (STATS, 0, {"evicted_wanted": 221}, [(WANTED, None)]),
    (STATS, 0, {"max_used_bytes": 399}, [(MOST, None)]),
    (STATS, 0, {"used_bytes": 589}, [(TRIGGER, None)]),
    (STATS, 0, {"rule": "closed"}, [(END, None)]),
    (STATS, 0, {"window_ms": 59_999}, [(END, None), (ALIGNED, None)]),
    (EVICTIONS, 0, {"cause": "age"}, [(SET, "cause"), (RULE, None)]),
    (EVICTIONS, 0, {"cause": "time"}, [(RULE, None)]),
    (EVICTIONS, 0, {"rule": "size+unlucky"}, [(RULE, None)]),
    (EVICTIONS, 0, {"rule": "size+never_wanted"}, [(RULE, None)]),
    (EVICTIONS, 0, {"expected_remaining": 0}, [(RULE, None)]),
    (EVICTIONS, 0, {"expected_remaining": None}, [(RULE, None)]),
    (EVICTIONS, 0, {"age_ns": -1}, [(RANGE, "age_ns")]),
    (EVICTIONS, 0, {"entry_bytes": 601}, [(PART, None)]),
    (EVICTIONS, 0, {"max_bytes": None}, [(CHECKED, None)]),
    (EVICTIONS, 0, {"used_bytes_before": 588}, [(ABOVE, None)]),
    (READS, 0, {"rule": "hit"}, [(HIT, None)]),
    (READS, 0, {"rule": "seen"}, [(SET, "rule")]),
    (READS, 0, {"hit": True}, [(HIT, None)]),
    (READS, 0, {"reader_kind": "idle"}, [(SET, "reader_kind")]),
    (READS, 0, {"position": "1"}, [(POSITION, None)]),
]


def test_the_rows_of_these_tests_have_most_of_what_there_is():
    evictions = rows_of(EVICTIONS)
    assert {r["cause"] for r in evictions} == {"time", "size", "invalidated"}
    assert {r["rule"].partition("+")[2] for r in evictions} == {"", "extended_out", "never_wanted"}
    assert {(r["hit"], r["reader_kind"]) for r in rows_of(READS)} == {
        (True, "tail"),
        (True, "catch_up"),
        (False, "tail"),
        (False, "catch_up"),
    }
    assert (rows_of(STATS)[0]["topic"], rows_of(STATS)[0]["used_bytes"]) == (None, 400)
    assert rows_of(STATS)[1]["topic"] is not None


@pytest.mark.parametrize("table", TABLES)
def test_what_the_core_writes_passes(table):
    assert failures(table, rows_of(table), SUITES[table]) == {}


@pytest.mark.parametrize("table", TABLES)
def test_each_damage_is_named_and_counted(table):
    """One damaged row per cluster, so that none explains another; the first row is repeated."""
    rows = rows_of(table)
    expected = Counter({(UNIQUE, KEY): 2})
    broken = [*rows, {**rows[0], "cluster": "twice"}, {**rows[0], "cluster": "twice"}]
    for number, (name, row, changes, found) in enumerate(DAMAGE):
        if name == table:
            assert changes.keys() <= rows[row].keys()
            broken.append({**rows[row], **changes, "cluster": f"damaged-{number}"})
            expected.update(found)
    assert failures(table, broken, SUITES[table]) == expected


@pytest.mark.parametrize("column", ["hits", "misses", "inserted", "evicted_time", "used_bytes"])
def test_a_broker_that_counts_otherwise_than_its_topics_is_found(column):
    rows = rows_of(STATS)
    rows[1][column] += 1
    assert failures(STATS, rows, SUITES[STATS])[SUM, None] == 1


def test_entries_that_come_from_nowhere_are_found():
    rows = rows_of(STATS)
    (last,) = [
        r
        for r in rows[1:]
        if r["policy"] == "expected_reads" and r["topic"] is None and r["inserted"] > 0
    ]
    last["entries"] += 1
    assert failures(STATS, rows, SUITES[STATS])[FLOW, None] == 1


@pytest.mark.parametrize("rows", [rows_of, lambda table: []])
def test_what_the_core_writes_and_nothing_agree_across_tables(rows):
    assert across(STATS, rows(STATS), TABLES, rows) == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"hit": True},
        {"broker": "b2"},
        {"policy": "fifo"},
        {"ts_wall_ms": 0},
    ],
)
def test_a_window_that_counts_otherwise_than_its_reads_is_found(changes):
    first, *rest = rows_of(READS)
    given = [*rest, {**first, **changes}]
    found = across(STATS, rows_of(STATS), TABLES, rows_of, cache_reads=given)
    assert found == {(READ, None): 2 if "policy" in changes else 1}


@pytest.mark.parametrize(
    "changes",
    [
        {"cause": "time"},
        {"cause": "invalidated"},
        {"broker": "b2"},
        {"expected_remaining": 0},
    ],
)
def test_a_window_that_counts_otherwise_than_its_evictions_is_found(changes):
    first, *rest = rows_of(EVICTIONS)
    given = [*rest, {**first, **changes}]
    assert across(STATS, rows_of(STATS), TABLES, rows_of, cache_evictions=given) == {
        (COUNTED, None): 1
    }


def test_tables_that_are_off_are_not_missed():
    off = {EVICTIONS: [], READS: []}
    assert across(STATS, rows_of(STATS), TABLES, rows_of, **off) == {}
