"""Hours of use of limits, one window or check each."""

from __future__ import annotations

from typing import Any

from app.tables.definitions import TABLES
from tests.support.client_quota_rows import stats
from tests.support.throttle_rows import COMMON, TOPIC

HOUR = 3_600_000
DAY = 24 * HOUR
END_MS = 1_700_006_400_000
"""A midnight (UTC)."""


def published(ago: int, used: float, name: str = TOPIC, **changes: Any) -> dict[str, Any]:
    """A minute of an hour that ended `ago` hours before the end: `used` messages a second of the
    hundred that a topic may."""
    start_ms = END_MS - (ago + 1) * HOUR
    return {
        **dict.fromkeys(TABLES["limiter_stats"].names),
        **COMMON,
        "ts_wall_ms": start_ms + 60_000,
        "window_start_ms": start_ms,
        "window_ms": 60_000,
        "limiter": "topic",
        "limiter_name": name,
        "messages": round(60 * used),
        "bytes": 0,
        "limit_msgs": 100.0,
        "min_balance_msgs": 1,
        "throttles": 0,
        **changes,
    }


def checked(
    ago: int, size: int, limit: int = 1000, name: str | None = TOPIC, **changes: Any
) -> dict[str, Any]:
    """A check of a backlog in such an hour."""
    at_ms = END_MS - (ago + 1) * HOUR
    return {
        **dict.fromkeys(TABLES["backlog_checks"].names),
        **COMMON,
        "job": "backlog",
        "ts_wall_ms": at_ms,
        "pass_ms": at_ms,
        "topic": name,
        "backlog_bytes": size,
        "limit_bytes": limit,
        "age_s": -1,
        "exceeded_size": size >= limit,
        **changes,
    }


def identified(ago: int, rate: float, user: str = "etl", bound: float = 10.0) -> dict[str, Any]:
    """A minute of a user's new producer ids in such an hour."""
    start_ms = END_MS - (ago + 1) * HOUR
    return {
        **dict.fromkeys(TABLES["producer_id_stats"].names),
        **COMMON,
        "job": "producer_ids",
        "ts_wall_ms": start_ms + 60_000,
        "window_start_ms": start_ms,
        "window_ms": 60_000,
        "user": user,
        "rate": rate,
        "utilisation": rate / bound,
        "rejected": 0,
    }


def decided(ago: int, user: str = "etl", bound: float = 10.0) -> dict[str, Any]:
    """A decision that shows the user's bound."""
    return {
        **dict.fromkeys(TABLES["producer_id_decisions"].names),
        **COMMON,
        "job": "producer_ids",
        "ts_wall_ms": END_MS - (ago + 1) * HOUR,
        "user": user,
        "producer_id": 1,
        "verdict": "counted",
        "bound": bound,
        "bound_source": "user",
    }


def client_used(ago: int, **changes: Any) -> dict[str, Any]:
    """A minute of a user's bytes in such an hour: 50 a second of the hundred that it may."""
    start_ms = END_MS - (ago + 1) * HOUR
    times = {"window_start_ms": start_ms, "ts_wall_ms": start_ms + 60_000}
    return stats(0, **times, **changes)


def reached() -> dict[str, Any]:
    """A row at the end, so that the last hour is whole; of a limit that is none."""
    return published(-1, 0, "persistent://acme/orders/none", limit_msgs=None)
