"""What tests share of quota usage."""

from __future__ import annotations

from typing import Any

from tests.support.ready_questions import limiter
from tests.support.throttle_rows import COMMON, START_MS

MINUTE = 60_000


def level(name: str, kind: str, used: int, most: int) -> dict[str, Any]:
    return limiter(
        0,
        name,
        used / most,
        limiter=kind,
        max_level=used,
        limit_level=most,
        messages=None,
        bytes=None,
        limit_msgs=None,
    )


def user(name: str, **columns: Any) -> dict[str, Any]:
    return {
        **COMMON,
        "job": "producer_ids",
        "user": name,
        "window_start_ms": START_MS,
        "window_ms": MINUTE,
        "rejected": 0,
        "throttle_time_avg_ms": None,
        **columns,
    }
