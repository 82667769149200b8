"""What policies do to clients of Kafka: requests over a quota, the time that they wait, and rates over it
that brokers measure."""

from __future__ import annotations

from app.tables.client_entity import client_entity
from app.tables.view import Shadowed, ShadowMeasure

_STATS = "client_quota_stats"
SHADOWED = Shadowed(
    _STATS,
    (
        *(
            ShadowMeasure(
                name,
                _STATS,
                "CAST(throttled AS DOUBLE)",
                f"throttled > 0 AND basis = '{basis}'",
            )
            for name, basis in (("throttled_requests", "requests"), ("rates_over_quota", "metrics"))
        ),
        ShadowMeasure(
            "client_throttle_s",
            _STATS,
            "CAST(throttle_ms AS DOUBLE) / 1000",
            "throttle_ms > 0",
        ),
    ),
    entity=client_entity("t"),
)
