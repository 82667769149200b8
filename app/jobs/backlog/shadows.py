"""What policies do to topics: checks over quota, evicted entries, refused producers."""

from __future__ import annotations

from app.warehouse.view import Measure, Shadowed

_ONE = "CAST(1 AS DOUBLE)"
SHADOWED = Shadowed(
    "backlog_checks",
    (
        Measure("checks_over_quota", "backlog_checks", _ONE, "exceeded_size OR exceeded_time"),
        Measure(
            "evicted_entries",
            "backlog_evictions",
            "CAST(entries_skipped AS DOUBLE)",
            "entries_skipped > 0",
        ),
        Measure("refused_producers", "producer_refusals", _ONE, "true"),
    ),
)
