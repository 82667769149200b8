"""What tests share of throttle publisher."""

from __future__ import annotations

from typing import Any

from tests.support.throttle_rows import COMMON, START_MS, TOPIC


def command(**changes: Any) -> dict[str, Any]:
    """A row of producer_throttle that is a command."""
    return {
        **COMMON,
        "cnx_id": "c1",
        "producer_id": 1,
        "producer_name": "p",
        "topic": TOPIC,
        "partition": None,
        "reason": "TopicProduceQuotaExceeded",
        "start_ms": START_MS,
        "pause_ms": 250,
        "end_ms": START_MS + 250,
        "request_id": 1,
        "throttled_ms_total": 250,
        "sequence_id": None,
        "exception": None,
        **changes,
    }
