"""Rows of the throttle tables for tests: only what a test is about is spelled out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

from app.tables.definitions import TABLES

TOPIC = "persistent://acme/orders/created"
OTHER = "persistent://acme/orders/paid"
START_MS = 1_700_000_040_000
"""The start of a minute."""

COMMON: dict[str, Any] = {
    "job": "rate_limits",
    "cluster": "east",
    "broker": "b1",
    "ts_mono_ns": 0,
    "ts_wall_ms": START_MS,
    "rule": "bucket_empty",
    "switches": [("tokenbucket", "saturating")],
    "params_hash": "abc",
    "source_feed": "contract",
    "row_no": 0,
}


def event(at_ms: int, action: str, **changes: Any) -> dict[str, Any]:
    """A row of throttle_events `at_ms` after the start, on both clocks. `culprit_topic` is also the
    topic of the publish, and stays the culprit where the limit is the topic's own."""
    marks = action == "mark"
    row = {
        **COMMON,
        "ts_mono_ns": at_ms * 1_000_000,
        "ts_wall_ms": START_MS + at_ms,
        "rule": "bucket_empty" if marks else "released",
        "cnx_id": "c1",
        "producer_id": 1,
        "producer_name": "p",
        "topic": TOPIC,
        "action": action,
        "throttle_type": "TopicPublishRate",
        "reason": "TopicProduceQuotaExceeded",
        "reason_number": 0,
        "limiter": "topic",
        "transition": "ConnectionStateChanged",
        "reads_paused": marks,
        "culprit_topic": TOPIC,
        "collateral_topics": [OTHER] if marks else [],
        "balance_msgs": 0 if marks else 1,
        "balance_bytes": None,
        "pause_pip_ms": 750 if marks else None,
        "pause_model_ns": 10_000_000 if marks else 0,
        "waiting": 1 if marks else 0,
        "pause_observed_ns": None,
        "request_id": None,
        "receipt_state": None,
        **changes,
    }
    limiter, publisher = row["limiter"], row["culprit_topic"]
    names = {
        "topic": publisher,
        "broker": row["broker"],
        "connection": row["cnx_id"],
        "resource_group": "g",
        "io_thread": "0",
        "unknown": None,
    }
    return {
        "trigger_topic": publisher,
        "limiter_name": names[limiter],
        **row,
        "culprit_topic": publisher if limiter == "topic" else None,
    }


def window(minute: int, **changes: Any) -> dict[str, Any]:
    """A row of topic_throttle_stats for one quiet minute after the start."""
    start, length = START_MS + minute * 60_000, 60_000
    return {
        **COMMON,
        "ts_mono_ns": (minute + 1) * length * 1_000_000,
        "ts_wall_ms": start + length,
        "rule": "released",
        "topic": TOPIC,
        "window_start_ms": start,
        "window_ms": length,
        "limited_times": 0,
        "culprit_times": 0,
        "shared_times": 0,
        "collateral_times": 0,
        "culprit_ns": 0,
        "shared_ns": 0,
        "collateral_ns": 0,
        "by_reason": [],
        "messages": 600,
        "bytes": 6000,
        "limit_msgs": 100.0,
        "limit_bytes": None,
        "limited_by_limiter": [],
        "resource_group": None,
        **changes,
    }


def frame(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as the table `name` has them."""
    return pa.Table.from_pylist(rows, schema=TABLES[name].schema)


def write(warehouse: str, name: str, rows: list[dict[str, Any]]) -> None:
    """Append rows to a table of a warehouse, making both if need be."""
    Path(warehouse).mkdir(parents=True, exist_ok=True)
    deltalake.write_deltalake(
        f"{warehouse}/{name}",
        frame(name, rows),
        mode="append",
        partition_by=list(TABLES[name].partition_by) or None,
    )


def limiter_of(topic: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The row of limiter_stats of a topic's own limiter in the window of a row of
    topic_throttle_stats."""
    window_of = ("window_start_ms", "window_ms", "messages", "bytes", "limit_msgs", "limit_bytes")
    kept = (*COMMON, *window_of)
    left = 0 if topic["culprit_ns"] else 50
    return {
        **{name: topic[name] for name in kept},
        "limiter": "topic",
        "limiter_name": topic["topic"],
        "max_level": None,
        "limit_level": None,
        "min_balance_msgs": None if topic["limit_msgs"] is None else left,
        "min_balance_bytes": None if topic["limit_bytes"] is None else left,
        "throttles": topic["culprit_times"],
        "max_waiting": 0,
        "utilisation": None,
        **changes,
    }


def write_windows(warehouse: str, rows: list[dict[str, Any]]) -> None:
    """Append rows of topic_throttle_stats, and those of limiter_stats that come with them."""
    write(warehouse, "topic_throttle_stats", rows)
    limited = [row for row in rows if (row["limit_msgs"], row["limit_bytes"]) != (None, None)]
    write(warehouse, "limiter_stats", [limiter_of(row) for row in limited])
