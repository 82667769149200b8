"""What policies do to topics: checks over quota, evicted entries, refused producers."""

from __future__ import annotations

from app.tables.view import Shadowed, ShadowMeasure

_ONE = "CAST(1 AS DOUBLE)"
SHADOWED = Shadowed(
    "backlog_checks",
    (
        ShadowMeasure(
            "checks_over_quota", "backlog_checks", _ONE, "exceeded_size OR exceeded_time"
        ),
        ShadowMeasure(
            "evicted_entries",
            "backlog_evictions",
            "CAST(entries_skipped AS DOUBLE)",
            "entries_skipped > 0",
        ),
        ShadowMeasure("refused_producers", "producer_refusals", _ONE, "true"),
    ),
)
