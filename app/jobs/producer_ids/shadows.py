"""What policies do to users: ids throttled and rejected."""

from __future__ import annotations

from app.warehouse.view import Measure, Shadowed

_DECISIONS = "producer_id_decisions"
_ONE = "CAST(1 AS DOUBLE)"
SHADOWED = Shadowed(
    _DECISIONS,
    (
        Measure("throttled_ids", _DECISIONS, _ONE, "verdict = 'throttled'"),
        Measure("rejected_ids", _DECISIONS, _ONE, "verdict = 'rejected'"),
    ),
    entity="user",
)
