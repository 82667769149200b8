"""What policies do to clients of Kafka: requests over a quota, and the time that they wait."""

from __future__ import annotations

from app.tables.client_entity import client_entity
from app.tables.view import Shadowed, ShadowMeasure

_STATS = "client_quota_stats"
SHADOWED = Shadowed(
    _STATS,
    (
        ShadowMeasure("throttled_requests", _STATS, "CAST(throttled AS DOUBLE)", "throttled > 0"),
        ShadowMeasure(
            "client_throttle_s",
            _STATS,
            "CAST(throttle_ms AS DOUBLE) / 1000",
            "throttle_ms > 0",
        ),
    ),
    entity=client_entity("t"),
)
