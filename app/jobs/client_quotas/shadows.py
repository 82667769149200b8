"""What policies do to clients: requests throttled and refused, and the time that they wait."""

from __future__ import annotations

from app.tables.view import Shadowed, ShadowMeasure

_DECISIONS = "client_quota_decisions"
_ONE = "CAST(1 AS DOUBLE)"
SHADOWED = Shadowed(
    "client_quota_stats",
    (
        ShadowMeasure("throttled_requests", _DECISIONS, _ONE, "verdict = 'throttled'"),
        ShadowMeasure("refused_requests", _DECISIONS, _ONE, "verdict = 'refused'"),
        ShadowMeasure(
            "client_throttle_s",
            _DECISIONS,
            "CAST(throttle_ms AS DOUBLE) / 1000",
            "throttle_ms > 0",
        ),
    ),
    entity="user",
)
