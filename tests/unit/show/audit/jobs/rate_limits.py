"""The audit of rate_limits: rows of a few pauses, and how their tables contradict each other.

What is damaged in one table is in `test_audit.py`, through the command.
"""

from __future__ import annotations

from typing import Any

from tests.support.throttle_rows import COMMON, OTHER, START_MS, TOPIC, event, window
from tests.unit.show.audit.jobs.job import Conflict, Job, Rows, change, lose

TABLES = ("throttle_events", "topic_throttle_stats", "limiter_stats", "producer_throttle")
EVENTS, STATS, LIMITERS, COMMANDS = TABLES
PAUSES = "culprit, shared and collateral times are the pauses of the window"
MARKS, COMMANDED = "throttles are the marks of the window", "every command has its mark"
MARK = event(100, "mark", request_id=7)


def limiter(name: str, throttles: int, kind: str = "topic") -> dict[str, Any]:
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


ROWS: dict[str, Rows] = {
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


def rows_of(table: str) -> Rows:
    """Rows of a table."""
    return [dict(row) for row in ROWS[table]]


def _undated(rows: Rows) -> Rows:
    return [{**row, "ts_wall_ms": None} for row in rows]


JOB = Job(
    "rate_limits",
    TABLES,
    rows_of,
    conflicts=[
        *(
            Conflict(
                f"a window has other pauses than its marks: {column}",
                {STATS: change(0, **{column: value})},
                {STATS: {PAUSES: 1}},
            )
            for column, value in (
                ("culprit_times", 2),
                ("shared_times", 2),
                ("collateral_times", 1),
                ("window_start_ms", START_MS - 60_000),
                ("broker", "b2"),
                ("topic", "persistent://t/a/z"),
            )
        ),
        Conflict(
            "a pause is lost",
            {EVENTS: lose(1)},
            {
                STATS: {PAUSES: 2},
                LIMITERS: {MARKS: 1},
                COMMANDS: {COMMANDED: 1},
            },
        ),
        *(
            Conflict(
                f"limiter {row} counts other marks",
                {LIMITERS: change(row, throttles=9)},
                {LIMITERS: {MARKS: 1}},
            )
            for row in range(4)
        ),
        *(
            Conflict(
                f"a command has another {column}",
                {COMMANDS: change(0, **{column: value})},
                {COMMANDS: {COMMANDED: 1}},
            )
            for column, value in (("request_id", 8), ("cnx_id", "c2"))
        ),
        Conflict(
            "marks without a wall time are of no window",
            {EVENTS: _undated},
            {STATS: {}, LIMITERS: {}},
        ),
    ],
)
