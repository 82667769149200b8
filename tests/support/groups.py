"""What tests share of groups."""

from __future__ import annotations

from typing import Any

from tests.reference.backlog import judge
from tests.unit.state.backlog_trace import EVICTION, T0, numbered, play, policy, quota, record
from tests.unit.state.contract.jobs import JOBS
from tests.unit.state.shipping import Row

PARAMS = {"backlogQuotaCheckIntervalInSeconds": 10, "check_rows": "all"}
POLL_MS = 10_000


def of_kafka(kind: str, at: int, **columns: Any) -> Row:
    return record(
        kind,
        at,
        **{
            "source_feed": "kafka_groups",
            "broker": "kafka",
            "ts_mono_ns": None,
            "topic": "orders",
            "partition": 3,
            **columns,
        },
    )


def log(at: int, end: int, start: int | None = 0, each: int = 100) -> Row:
    return of_kafka(
        "ledger_state",
        at,
        ledger_id=0,
        ledger_entries=end,
        ledger_bytes=each * end,
        log_start=start,
    )


def offset(at: int, committed: int, group: str = "g", **columns: Any) -> Row:
    return of_kafka(
        "cursor_state",
        at,
        subscription=group,
        durable=True,
        mark_delete=f"0:{committed - 1}",
        **columns,
    )


def retention(seconds: int | None = None, size: int | None = None) -> Row:
    return policy(0, "topic", "orders", **quota(size, seconds, EVICTION))


def in_order(records: list[Row]) -> list[Row]:
    """Records as a poll numbers them."""
    return [{**r, "seq": i} for i, r in enumerate(records)]


def rows(records: list[Row], until: int, **params: Any) -> dict[str, list[Row]]:
    """Rows of the core, which are those of the reference."""
    chosen = {**PARAMS, **params}
    found = play([numbered(in_order(records))], chosen, [], T0 + until)
    JOBS["backlog"].assert_same(found, judge(in_order(records), chosen, [], T0 + until))
    return {name: found.get(name, []) for name in ("group_lag", "group_states", "lost_messages")}


def polls(*of: list[Row]) -> list[Row]:
    """Records of polls, each given at time 0, at the times of the polls."""
    return [
        {**r, "ts_wall_ms": r["ts_wall_ms"] + i * POLL_MS}
        for i, each in enumerate(of)
        for r in each
    ]
