"""Checks across the throttle tables; damage is named."""

from __future__ import annotations

import pytest

from tests.support.throttle_rows import COMMON, OTHER, START_MS, TOPIC, event, window
from tests.unit.quality.evaluated import across

TABLES = ("throttle_events", "topic_throttle_stats", "limiter_stats", "producer_throttle")
EVENTS, STATS, LIMITERS, COMMANDS = TABLES
PAUSES = "culprit, shared and collateral times are the pauses of the window"
MARKS, COMMANDED = "throttles are the marks of the window", "every command has its mark"
MARK = event(100, "mark", request_id=7)


def limiter(name: str, throttles: int, kind: str = "topic") -> dict[str, object]:
    return {
        **COMMON,
        "window_start_ms": START_MS,
        "window_ms": 60_000,
        "limiter": kind,
        "limiter_name": name,
        "throttles": throttles,
        "utilisation": 1.0,
        "limit_msgs": 1.0,
    }


ROWS = {
    EVENTS: [
        MARK,
        event(300, "unmark"),
        event(400, "mark", transition="Dropped", row_no=1),
        event(450, "mark", limiter="resource_group", transition="TypeStateChanged"),
        event(500, "mark", limiter="broker", cnx_id="c2"),
        event(60_000, "mark", topic=OTHER, culprit_topic=OTHER, collateral_topics=[TOPIC]),
    ],
    STATS: [
        window(0, culprit_times=1, shared_times=1, limited_times=2),
        window(0, topic=OTHER, collateral_times=1, shared_times=1, limited_times=2),
        window(1, collateral_times=1, limited_times=1),
        window(1, topic=OTHER, culprit_times=1, limited_times=1),
        window(2),
    ],
    LIMITERS: [
        limiter(TOPIC, 2),
        limiter("b1", 1, "broker"),
        limiter("g", 1, "resource_group"),
        limiter("c9", 0, "connection"),
    ],
    COMMANDS: [
        {**COMMON, "cnx_id": "c1", "topic": TOPIC, "producer_id": 1, "request_id": 7},
        {
            **COMMON,
            "cnx_id": "c1",
            "topic": TOPIC,
            "producer_id": 1,
            "sequence_id": 1,
            "exception": "TimeoutException",
            "rule": "send_timeout",
        },
        {**COMMON, "cnx_id": "c3", "topic": TOPIC, "producer_id": 1, "rule": "client_unsupported"},
    ],
}


@pytest.mark.parametrize("table", [STATS, LIMITERS, COMMANDS])
@pytest.mark.parametrize("rows", [ROWS.__getitem__, lambda table: []], ids=["rows", "none"])
def test_sound_rows_agree(table, rows):
    assert across(table, rows(table), TABLES, rows) == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"culprit_times": 2},
        {"shared_times": 2},
        {"collateral_times": 1},
        {"window_start_ms": START_MS - 60_000},
        {"broker": "b2"},
        {"topic": "persistent://t/a/z"},
    ],
)
def test_a_window_with_other_pauses_than_its_marks_is_found(changes):
    first, *rest = ROWS[STATS]
    assert across(STATS, [{**first, **changes}, *rest], TABLES, ROWS.__getitem__) == {
        (PAUSES, None): 1
    }


def test_a_lost_pause_is_missed_by_its_culprit_and_its_victims():
    lost = {EVENTS: ROWS[EVENTS][1:]}
    assert across(STATS, ROWS[STATS], TABLES, ROWS.__getitem__, **lost) == {(PAUSES, None): 2}
    assert across(LIMITERS, ROWS[LIMITERS], TABLES, ROWS.__getitem__, **lost) == {(MARKS, None): 1}
    assert across(COMMANDS, ROWS[COMMANDS], TABLES, ROWS.__getitem__, **lost) == {
        (COMMANDED, None): 1
    }


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_a_limiter_that_counts_otherwise_than_its_marks_is_found(place):
    rows = list(ROWS[LIMITERS])
    rows[place] = {**rows[place], "throttles": 9}
    assert across(LIMITERS, rows, TABLES, ROWS.__getitem__) == {(MARKS, None): 1}


def test_a_command_of_another_request_or_connection_is_found():
    for changes in ({"request_id": 8}, {"cnx_id": "c2"}):
        rows = [{**ROWS[COMMANDS][0], **changes}, *ROWS[COMMANDS][1:]]
        assert across(COMMANDS, rows, TABLES, ROWS.__getitem__) == {(COMMANDED, None): 1}


def test_rows_of_an_earlier_version_have_no_class_of_shared_limits():
    """They count a shared limit as its trigger's fault, and do not name it."""
    old = {
        EVENTS: [
            {
                **row,
                "trigger_topic": None,
                "limiter_name": None,
                "culprit_topic": row["trigger_topic"],
            }
            for row in ROWS[EVENTS]
        ],
        STATS: [{**row, "shared_times": None, "shared_ns": None} for row in ROWS[STATS]],
    }
    rows = {**ROWS, **old}
    assert across(STATS, rows[STATS], TABLES, rows.__getitem__) == {}
    assert across(LIMITERS, [limiter(TOPIC, 9)], TABLES, rows.__getitem__) == {}


def test_rows_without_a_wall_time_say_nothing_of_windows():
    undated = {EVENTS: [{**row, "ts_wall_ms": None} for row in ROWS[EVENTS]]}
    assert across(STATS, ROWS[STATS], TABLES, ROWS.__getitem__, **undated) == {}
    assert across(LIMITERS, ROWS[LIMITERS], TABLES, ROWS.__getitem__, **undated) == {}
