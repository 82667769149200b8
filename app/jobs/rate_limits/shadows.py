"""What policies do to topics: pauses, paused time, and that of victims."""

from __future__ import annotations

from app.tables.view import Shadowed, ShadowMeasure

_STATS = "topic_throttle_stats"
_PAUSED = "CAST(culprit_ns AS DOUBLE) + CAST(shared_ns AS DOUBLE) + CAST(collateral_ns AS DOUBLE)"
SHADOWED = Shadowed(
    _STATS,
    (
        ShadowMeasure("pauses", _STATS, "CAST(limited_times AS DOUBLE)", "limited_times > 0"),
        ShadowMeasure("paused_s", _STATS, f"({_PAUSED}) / 1e9", f"{_PAUSED} > 0"),
        ShadowMeasure(
            "victim_s", _STATS, "CAST(collateral_ns AS DOUBLE) / 1e9", "collateral_ns > 0"
        ),
    ),
)
