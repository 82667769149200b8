"""A warehouse with rows for every section of a report, under hostile names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.tables.definitions import TABLES
from tests.support.quota_usage import user
from tests.support.ready_questions import (
    COORDINATED,
    MINUTE,
    NS,
    UNPREDICTED,
    baked,
    broken,
    cache,
    check,
    compared,
    cursor,
    fate,
    limiter,
    live,
    new_id,
    opened,
    predicted,
    stats,
    waiting,
)
from tests.support.throttle_rows import START_MS, event, write

SCRIPT = "persistent://acme/orders/<script>alert(1)</script>"
IMAGE = "persistent://acme/\"'><img src=x onerror=alert(2)>"
CLOSING = "persistent://acme/</text></svg></style><script>alert(3)</script>{{ 7 * 7 }}\\"
LONG = "persistent://acme/" + "unbroken" * 60
USER = "<b onmouseover=alert(4)>eve</b>"
NAMES = (SCRIPT, IMAGE, CLOSING, LONG)

TABLES_WITH_ROWS: dict[str, list[dict[str, Any]]] = {
    "throttle_events": [
        event(
            1000,
            "mark",
            culprit_topic=SCRIPT,
            topic=SCRIPT,
            collateral_topics=[IMAGE, CLOSING, LONG],
        ),
        event(4000, "unmark", culprit_topic=SCRIPT, topic=SCRIPT),
        event(
            70_000,
            "mark",
            cnx_id="c2",
            culprit_topic=LONG,
            topic=LONG,
            collateral_topics=[SCRIPT],
            reason="<i>reason</i>",
        ),
    ],
    "topic_throttle_stats": [
        stats(0, SCRIPT, culprit_times=1, culprit_ns=3 * NS, limited_times=1),
        stats(1, SCRIPT, collateral_times=1, collateral_ns=5 * NS, limited_times=1),
        *(
            stats(0, name, collateral_times=1, collateral_ns=3 * NS, limited_times=1)
            for name in (IMAGE, CLOSING, LONG)
        ),
        stats(1, LONG, culprit_times=1, culprit_ns=5 * NS, limited_times=1),
    ],
    "limiter_stats": [
        limiter(
            0,
            SCRIPT,
            1.5,
            messages=9000,
            bytes=1,
            limit_msgs=100.0,
            limit_bytes=None,
            min_balance_msgs=0,
            min_balance_bytes=None,
        ),
        limiter(
            0,
            IMAGE,
            0.5,
            messages=3000,
            bytes=1,
            limit_msgs=100.0,
            limit_bytes=None,
            min_balance_msgs=9,
            min_balance_bytes=None,
        ),
    ],
    "producer_id_stats": [user(USER, rate=0.5, utilisation=2.0, rejected=1)],
    "producer_id_decisions": [
        new_id(0, USER, 1, "counted"),
        new_id(1, USER, 2, "rejected"),
        new_id(2, "bob", 3, "counted"),
    ],
    "shadow_topic_throttle_stats": [
        {**stats(0, SCRIPT, culprit_times=3, culprit_ns=NS, limited_times=3), "policy": "next"},
    ],
    "producer_id_live": [live(0, "orders", USER, 7, 9), live(1, "bills", "unknown", 3, 3)],
    "open_transactions": [
        opened(0, "hanging", 1, producer_id=8),
        opened(0, "Ongoing", 2, **COORDINATED),
    ],
    "backlog_checks": [
        check(SCRIPT, 0, limit_s=60, age_s=30, time_usage=0.5, action="none"),
        check(
            SCRIPT,
            MINUTE,
            limit_s=60,
            age_s=90,
            time_usage=1.5,
            exceeded_time=True,
            action="evict_time",
            retention_policy="consumer_backlog_eviction",
            oldest_subscription=USER,
        ),
        check(LONG, MINUTE, limit_bytes=160, age_s=5, size_usage=0.5, action="none"),
    ],
    "backlog_subscriptions": [
        cursor(USER, MINUTE, 0.0, topic=SCRIPT, age_s=90),
        cursor("late", MINUTE, 600.0, topic=LONG, age_s=5),
    ],
    "backlog_evictions": [
        {
            **check(SCRIPT, MINUTE),
            "subscription": USER,
            "quota_type": "time",
            "entries_skipped": 7,
        }
    ],
    "chunk_messages": [fate(0, "", "whole", topic=IMAGE)],
    "chunk_events": [fate(0, "GAP", "<u>lost</u>", topic=IMAGE)],
    "incomplete_messages": [waiting(1, "<u>waits</u>", topic=IMAGE)],
    "cache_stats": [cache(0, "expected_reads", 90, 10)],
    "cache_bakeoff": [
        baked("lru", 1000, 40, 60),
        baked("lru", 2000, 80, 20),
        baked("belady", 1000, 60, 40),
        baked("belady", 2000, 90, 10),
    ],
    "quarantine": [
        broken("BAD_TYPE", 1, detail="<script>alert(5)</script>"),
        broken("TOO_LATE", 2),
    ],
    "reconciliation": [
        compared(0, "messages_in", topic=SCRIPT, broker_value=11, difference=2),
        compared(0, "cache_hits", topic=None, reason="RATE_ONLY", difference=3),
    ],
    "forecasts": [
        predicted(1, entity=SCRIPT),
        predicted(1, entity=USER, kind="producer_ids", broker="b1", breached=True, breach_ms=None),
        predicted(1, entity=LONG, **UNPREDICTED),
    ],
    "quality_results": [
        {
            "run_id": "r1",
            "checked_ms": START_MS,
            "table": "events",
            "success": False,
            "expectation": "old",
            "column": None,
        },
        {
            "run_id": "r2",
            "checked_ms": START_MS + 1,
            "table": "events",
            "success": True,
            "expectation": "unique",
            "column": "seq",
        },
        {
            "run_id": "r2",
            "checked_ms": START_MS + 1,
            "table": "alerts",
            "success": False,
            "expectation": "in_set",
            "column": "state",
            "observed": '"<script>alert(6)</script>"',
            "unexpected_count": 3,
        },
    ],
    "alerts": [
        {
            "alert": "over",
            "labels": [("topic", SCRIPT)],
            "state": "firing",
            "at_ms": START_MS,
            "since_ms": START_MS,
            "severity": "page",
            "summary": f"{SCRIPT} is over",
            "number": 1,
            "checked_ms": START_MS,
            "runbook": "javascript:alert(7)",
        },
        {
            "alert": "over",
            "labels": [("topic", LONG)],
            "state": "firing",
            "at_ms": START_MS,
            "since_ms": START_MS,
            "severity": "page",
            "summary": "is over",
            "number": 1,
            "checked_ms": START_MS,
        },
        {
            "alert": "over",
            "labels": [("topic", LONG)],
            "state": "resolved",
            "at_ms": START_MS + MINUTE,
            "since_ms": START_MS,
            "severity": "page",
            "summary": "was over",
            "number": 2,
            "checked_ms": START_MS,
        },
    ],
}


def fill(warehouse: str) -> None:
    """Write all of it."""
    Path(warehouse, "_weir").mkdir(parents=True)
    for name, rows in TABLES_WITH_ROWS.items():
        write(warehouse, name, [{c: row.get(c) for c in TABLES[name].names} for row in rows])
