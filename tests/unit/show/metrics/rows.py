"""A small warehouse with rows of every job, in the order in which they were committed."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from app.show.metrics.health import FOLDER
from app.tables.definitions import TABLES
from tests.support.quota_usage import level
from tests.support.ready_questions import UNPREDICTED, broken, lag, limiter, live, predicted
from tests.support.ready_questions import cache as cache_row
from tests.support.ready_questions import lost as lost_row
from tests.support.throttle_rows import COMMON, OTHER, START_MS, TOPIC, event, window, write
from tests.support.views import traffic
from tests.unit.show.audit.jobs import rows_of

Rows = dict[str, list[dict[str, Any]]]
NS = 1_000_000_000
MINUTE = 60_000


def topic_window(minute: int, topic: str, role: str, times: int, **changes: Any) -> dict[str, Any]:
    """A minute in which a topic was paused `times` times, for two seconds each."""
    return window(
        minute,
        **{
            "topic": topic,
            "limited_times": times,
            f"{role}_times": times,
            f"{role}_ns": times * 2 * NS,
            "limited_by_limiter": [("topic", times)],
            **changes,
        },
    )


def alert(at_ms: int, state: str, topic: str = TOPIC) -> dict[str, Any]:
    """A change of publish-limit."""
    return {
        "alert": "publish-limit",
        "labels": [("cluster", "east"), ("topic", topic)],
        "state": state,
        "at_ms": START_MS + at_ms,
        "since_ms": START_MS,
        "value": 1.5,
        "severity": "warning",
        "summary": "",
        "runbook": "",
        "checked_ms": START_MS + at_ms,
    }


def audited(run: int, success: bool) -> dict[str, Any]:
    """An expectation of an audit."""
    return {
        "run_id": f"r{run}",
        "checked_ms": START_MS + run,
        "table": "throttle_events",
        "expectation": "e",
        "column": None,
        "success": success,
        "observed": "{}",
        "unexpected_count": 0,
    }


def policies(version: int | None, read_s: int) -> dict[str, Any]:
    """A version of the policies that govern has taken; without a number an edit that it has not."""
    return {
        "query": "govern",
        "version": version,
        "read_ms": START_MS + read_s * 1000,
        "error": "c.yaml: wrong" if version is None else None,
    }


def counted(broker: str, minute: int, received: int, quarantined: int) -> dict[str, Any]:
    return {
        "cluster": "east",
        "broker": broker,
        "minute_ms": START_MS + minute * 60_000,
        "received": received,
        "quarantined": quarantined,
    }


def lost(job: str, blind_s: int) -> dict[str, Any]:
    """A gap of b1 that dropped 7 events."""
    return {
        "cluster": "east",
        "broker": "b1",
        "source_feed": "f",
        "seq": 9,
        "ts_wall_ms": START_MS,
        "gap_from_wall_ms": START_MS - 1000,
        "dropped": 7,
        "job": job,
        "blind_until_ms": START_MS + blind_s * 1000,
    }


def compared(minute: int, difference: int, **changes: Any) -> dict[str, Any]:
    """A number of b1 and Weir."""
    return {
        "compared_ms": START_MS,
        "cluster": "east",
        "broker": "b1",
        "topic": TOPIC,
        "measure": "messages_in",
        "compared_job": "rate_limits",
        "bound": 0,
        "window_start_ms": START_MS + minute * 60_000,
        "window_ms": 60_000,
        "broker_value": 100 + difference,
        "weir_value": 100,
        "difference": difference,
        "reason": None,
        **changes,
    }


@cache
def _every() -> Rows:
    commands = traffic()
    found: Rows = {
        "topic_throttle_stats": [
            topic_window(0, TOPIC, "culprit", 2),
            topic_window(0, OTHER, "collateral", 2),
            window(0, topic="persistent://acme/quiet/one"),
            topic_window(1, TOPIC, "culprit", 3, limited_by_limiter=[("topic", 1), ("broker", 2)]),
            topic_window(1, OTHER, "collateral", 3),
            topic_window(2, TOPIC, "culprit", 1),
            window(2, topic=OTHER, collateral_ns=NS),
            topic_window(2, "plain", "culprit", 1),
        ],
        "throttle_events": [
            event(100, "mark"),
            event(300, "unmark"),
            event(400, "mark", cnx_id="c2"),
            event(500, "mark", throttle_type="BrokerPublishRate", transition="TypeStateChanged"),
            event(600, "unmark"),
            event(700, "mark", limiter="connection", cnx_id="c3", broker="b2"),
            event(
                700,
                "mark",
                limiter="connection",
                cnx_id="c3",
                broker="b2",
                row_no=1,
                transition="Dropped",
                reads_paused=True,
            ),
            event(900, "unmark", limiter="connection", cnx_id="c3", broker="b2"),
            event(950, "mark", cnx_id="c1"),
        ],
        "producer_throttle": [
            {**row, "cluster": "east", "broker": broker, "switches": []}
            for broker in ("b1", "b2")
            for row in commands["producer_throttle"]
        ],
        "limiter_stats": [
            limiter(
                0,
                TOPIC,
                0.5,
                messages=3000,
                bytes=600_000,
                limit_msgs=100.0,
                limit_bytes=40_000.0,
                min_balance_msgs=0,
                min_balance_bytes=1,
            ),
            level("c1", "connection", 1000, 1000),
            level("c2", "connection", 999, 1000),
            limiter(
                1,
                TOPIC,
                1.5,
                messages=9000,
                bytes=600_000,
                limit_msgs=100.0,
                limit_bytes=40_000.0,
                min_balance_msgs=-5,
                min_balance_bytes=1,
            ),
            limiter(
                2,
                TOPIC,
                1.2,
                messages=7200,
                bytes=600_000,
                limit_msgs=100.0,
                limit_bytes=40_000.0,
                min_balance_msgs=-5,
                min_balance_bytes=1,
            ),
        ],
        "cache_stats": [
            {
                **cache_row(minute, policy, 9, 1),
                "passes_size": 2,
                "inserted": 10,
                "evicted_time": 3,
                "evicted_size": 4,
                "entries": 5,
                "used_bytes": 50,
            }
            for minute in (0, 1)
            for policy in ("fifo", "expected_reads")
        ]
        + [{**cache_row(1, "fifo", 5, 5), "topic": TOPIC}],
        "quarantine": [
            broken("BAD_TOPIC", 1),
            broken("TOO_LATE", 2, job="rate_limits"),
            broken("BAD_TOPIC", 3),
            broken("BAD_TYPE", 3),
        ],
        "coverage_counts": [counted("b1", 0, 5, 1), counted("b1", 0, 2, 0), counted("b2", 0, 1, 0)],
        "coverage_gaps": [lost("rate_limits", 10), lost("chunks", 120), lost("chunks", 120)],
        "coverage_polls": [
            {
                "cluster": "east",
                "source_feed": "kafka_groups",
                "seq": 1,
                "ts_wall_ms": 5,
                "dropped": 0,
            },
            {
                "cluster": "east",
                "source_feed": "kafka_groups",
                "seq": 2,
                "ts_wall_ms": 6,
                "problem": "x",
            },
        ],
        "alerts": [alert(0, "firing"), alert(0, "firing", OTHER), alert(60_000, "resolved", OTHER)],
        "producer_id_live": [
            live(0, "orders", "etl", 2, 3),
            live(9, "orders", "etl", 5, 7, broker_heap_bytes=6000),
            live(5, "orders", "etl", 1, 1, broker="2"),
        ],
        "shadow_topic_throttle_stats": [
            {**topic_window(0, TOPIC, "collateral", 3), "policy": "next"},
        ],
        "group_states": [
            {
                "cluster": "east",
                "group": "g",
                "pass_ms": 5,
                "ts_wall_ms": 5,
                "row_no": 0,
                "state": "stable",
            }
        ],
        "group_lag": [
            lag("g", 0, 7, age_state="known", time_usage=0.5, time_to_loss_s=60.0),
            lag("g", 60_000, 9, age_state="known", time_usage=0.6, time_to_loss_s=50.0),
        ],
        "lost_messages": [lost_row("g", 0, 1, 5), lost_row("g", 60_000, 5, 6)],
        "policies": [policies(0, 0), policies(1, 5), policies(None, 9)],
        "reconciliation": [
            compared(0, 5),
            compared(1, 0),
            compared(1, 2),
            compared(1, 3, bound=3),
            compared(1, 9, reason="GAP"),
            compared(0, 1, broker="b2"),
        ],
        "forecasts": [
            predicted(0, entity=OTHER),
            predicted(1),
            predicted(1, entity="flat", breach_ms=None),
            predicted(1, entity=OTHER, breached=True),
            predicted(1, entity="gone", **UNPREDICTED),
        ],
        "quality_results": [
            audited(1, False),
            audited(1, True),
            audited(2, True),
            audited(2, False),
            audited(2, True),
        ],
    }
    for name in (
        "backlog_checks",
        "backlog_evictions",
        "backlog_subscriptions",
        "producer_refusals",
        "chunk_messages",
        "chunk_events",
        "chunk_state",
        "chunk_topic_stats",
        "incomplete_messages",
        "producer_id_stats",
        "producer_id_decisions",
    ):
        found[name] = sorted(rows_of(name), key=lambda row: row["ts_wall_ms"] or 0)
    return {
        name: [
            {c: {**(COMMON if TABLES[name].job else {}), **row}.get(c) for c in TABLES[name].names}
            for row in rows
        ]
        for name, rows in found.items()
    }


def every() -> Rows:
    """Rows by table; no caller changes a row."""
    return {name: [*rows] for name, rows in _every().items()}


def fill(warehouse: str, *parts: Rows) -> None:
    """Commit rows, each part of each table as a commit of its own."""
    for part in parts:
        for name, rows in part.items():
            if rows:
                write(warehouse, name, rows)


def halves() -> tuple[Rows, Rows]:
    """The rows of every table in two."""
    rows = every()
    return (
        {name: part[: len(part) // 2] for name, part in rows.items()},
        {name: part[len(part) // 2 :] for name, part in rows.items()},
    )


def progress(warehouse: str, query: str, batches: int, at_s: float) -> None:
    """The file that a run writes of a query after so many batches."""
    file = Path(warehouse, FOLDER, f"{query}.json")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        json.dumps(
            {
                "name": query,
                "batch": batches - 1,
                "events": 1000 * batches,
                "per_second": 1000.0,
                "batch_ms": 900,
                "latest_event_s": at_s - 2,
                "state_bytes": 2_000_000,
                "batches": batches,
                "phases_ms": {"triggerExecution": 900 * batches, "addBatch": 700 * batches},
                "requests": {"put": 4 * batches},
                "seen_ms": int(at_s * 1000),
            }
        )
    )
