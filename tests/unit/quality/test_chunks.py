"""The audit of the chunk tables: what the core writes passes, each kind of damage is named."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from app.quality.suites import SUITES
from tests.unit.quality.chunk_rows import START_MS, rows_of
from tests.unit.quality.evaluated import across, failures

TABLES = (
    "chunk_messages",
    "chunk_events",
    "chunk_state",
    "incomplete_messages",
    "chunk_topic_stats",
)
SET, RANGE = "expect_column_values_to_be_in_set", "expect_column_values_to_be_between"
UNIQUE = "expect_compound_columns_to_be_unique"
POSITIONS = "positions are ledger:entry"
WINDOW = "a window is written at its end"
LEAKED = "leaked is counter less contexts"

# Table, row, what is changed in it, the rules that find it (with their columns).
DAMAGE: list[tuple[str, int, dict[str, Any], list[tuple[str, str | None]]]] = [
    ("chunk_messages", 0, {"integrity": "whole"}, [(SET, "integrity")]),
    ("chunk_messages", 0, {"integrity": "short"}, [("integrity agrees with the sizes", None)]),
    ("chunk_messages", 0, {"assembled_bytes": 199}, [("integrity agrees with the sizes", None)]),
    ("chunk_messages", 0, {"integrity": "unknown"}, [("integrity agrees with the sizes", None)]),
    (
        "chunk_messages",
        0,
        {"integrity": "too_large", "checksum": 0},
        [("integrity agrees with the sizes", None)],
    ),
    ("chunk_messages", 0, {"checksum": 2**32}, [(RANGE, "checksum")]),
    (
        "chunk_messages",
        0,
        {"num_chunks": 3},
        [("a message has a position for every chunk, from the first to the last", None)],
    ),
    (
        "chunk_messages",
        0,
        {"last_position": "7:1"},
        [("a message has a position for every chunk, from the first to the last", None)],
    ),
    ("chunk_messages", 0, {"positions": ["7:1", "7"], "last_position": "7"}, [(POSITIONS, None)]),
    (
        "chunk_messages",
        0,
        {"assembly_ms": 1},
        [("assembly_ms is the time between the first chunk and the last", None)],
    ),
    (
        "chunk_messages",
        0,
        {"payload": b"x" * 200, "checksum": 1},
        [("a payload has the length and the sum of its row", None)],
    ),
    ("chunk_events", 1, {"outcome": "LOST", "rule": "LOST"}, [(SET, "outcome")]),
    (
        "chunk_events",
        0,
        {"rule": "GAP+B9"},
        [("a rule is its outcome, with at most one defect", None)],
    ),
    (
        "chunk_events",
        0,
        {"rule": "COMPLETE"},
        [("a rule is its outcome, with at most one defect", None)],
    ),
    ("chunk_events", 0, {"chunk_id": 3}, [("a chunk is one of its message", None)]),
    ("chunk_events", 0, {"permits": 2}, [(RANGE, "permits")]),
    ("chunk_events", 0, {"position": "7"}, [(POSITIONS, None)]),
    ("chunk_events", 0, {"acks": ["7:2"]}, [("a position has one fate in a row", None)]),
    ("chunk_events", 1, {"orphaned": ["7:1"]}, [("only a gap or an end orphans", None)]),
    ("chunk_events", 0, {"leaked": 0}, [(LEAKED, None)]),
    ("chunk_events", -1, {"leaked": 1, "counter": 1}, [("nothing leaks without B1", None)]),
    ("chunk_state", 0, {"counter": 3}, [(LEAKED, None)]),
    ("chunk_state", 0, {"oldest_age_ms": None}, [("contexts have an age", None)]),
    ("chunk_state", 0, {"fifo_length": 0}, [("every context stands in the fifo", None)]),
    ("chunk_state", 0, {"permits_lost": -1}, [(RANGE, "permits_lost")]),
    ("chunk_state", 0, {"rule": "closed"}, [(WINDOW, None)]),
    (
        "chunk_state",
        0,
        {"contexts": 0, "leaked": 2, "oldest_age_ms": None},
        [("nothing is buffered without contexts", None)],
    ),
    (
        "incomplete_messages",
        0,
        {"next_chunk_id": 3},
        [("a message waits for one of its chunks", None)],
    ),
    (
        "incomplete_messages",
        0,
        {"last_chunk_ms": START_MS},
        [("the times of a message follow each other", None)],
    ),
    (
        "incomplete_messages",
        0,
        {"ts_wall_ms": START_MS + 60_001, "age_ms": 52_001},
        [(WINDOW, None)],
    ),
    (
        "chunk_topic_stats",
        0,
        {"msg_chunk_published": True},
        [("msg_chunk_published says whether there were chunks", None)],
    ),
    (
        "chunk_topic_stats",
        0,
        {"producers": 1},
        [("chunks bound the first ones and the producers", None)],
    ),
    (
        "chunk_topic_stats",
        0,
        {"chunked_message_rate": 1.0},
        [("chunks bound the first ones and the producers", None)],
    ),
    (
        "chunk_topic_stats",
        0,
        {"window_ms": 59_999, "window_start_ms": START_MS + 1},
        [("windows are aligned to the epoch", None)],
    ),
]
WINDOWED = {
    "chunk_state": "cluster,topic,subscription,consumer,window_start_ms",
    "incomplete_messages": "cluster,topic,subscription,consumer,uuid,first_position,window_start_ms",
    "chunk_topic_stats": "cluster,topic,window_start_ms",
}


@pytest.mark.parametrize("table", TABLES)
def test_what_the_core_writes_passes(table):
    assert failures(table, rows_of(table), SUITES[table]) == {}


@pytest.mark.parametrize("table", TABLES)
def test_each_damage_is_named_and_counted(table):
    """One damaged row per cluster, so that none explains another; the first row is repeated."""
    rows = rows_of(table)
    expected = Counter({(UNIQUE, "cluster,topic,ts_wall_ms,row_no"): 2})
    if table in WINDOWED:
        expected[UNIQUE, WINDOWED[table]] = 2
    broken = [*rows, rows[0]]
    for number, (name, row, changes, found) in enumerate(DAMAGE):
        if name == table:
            assert changes.keys() <= {*rows[row], "payload"}
            broken.append({**rows[row], **changes, "cluster": f"damaged-{number}"})
            expected.update(found)
    assert failures(table, broken, SUITES[table]) == expected


MESSAGES, EVENTS, STATE, INCOMPLETE = TABLES[:4]
DECIDED, WHOLE = "every message has its decision", "what is complete is a message"
HELD = "contexts are the incomplete messages, with their bytes"
KEPT = "every incomplete message has the state of its consumer"


@pytest.mark.parametrize("table", [MESSAGES, EVENTS, STATE, INCOMPLETE])
def test_what_the_core_writes_agrees_across_tables(table):
    assert across(table, rows_of(table), TABLES, rows_of) == {}


@pytest.mark.parametrize("table", [MESSAGES, EVENTS, STATE, INCOMPLETE])
def test_tables_without_rows_agree(table):
    assert across(table, [], TABLES, lambda name: []) == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"uuid": "other"},
        {"ts_wall_ms": START_MS + 1},
        {"last_position": "7:9"},
        {"consumer": "other"},
        {"num_chunks": 9},
    ],
)
def test_a_message_and_its_decision_need_each_other(changes):
    first, *rest = rows_of(MESSAGES)
    changed = [{**first, **changes}, *rest]
    assert across(MESSAGES, changed, TABLES, rows_of) == {(DECIDED, None): 1}
    found = across(EVENTS, rows_of(EVENTS), TABLES, rows_of, **{MESSAGES: changed})
    assert found == {(WHOLE, None): 1}


@pytest.mark.parametrize("column", ["contexts", "buffered_bytes", "declared_bytes"])
def test_a_state_that_holds_other_than_its_messages_is_found(column):
    first, *rest = rows_of(STATE)
    changed = [{**first, column: first[column] + 1}, *rest]
    assert across(STATE, changed, TABLES, rows_of) == {(HELD, None): 1}


def test_an_incomplete_message_that_is_lost_or_is_nobodys_is_found():
    first, *rest = rows_of(INCOMPLETE)
    found = across(STATE, rows_of(STATE), TABLES, rows_of, **{INCOMPLETE: rest})
    assert found == {(HELD, None): 1}
    other = [{**first, "consumer": "other"}, *rest]
    assert across(INCOMPLETE, other, TABLES, rows_of) == {(KEPT, None): 1}
