"""What policies do to users: ids throttled and rejected."""

from __future__ import annotations

from app.tables.view import Shadowed, ShadowMeasure

_DECISIONS = "producer_id_decisions"
_ONE = "CAST(1 AS DOUBLE)"
SHADOWED = Shadowed(
    _DECISIONS,
    (
        ShadowMeasure("throttled_ids", _DECISIONS, _ONE, "verdict = 'throttled'"),
        ShadowMeasure("rejected_ids", _DECISIONS, _ONE, "verdict = 'rejected'"),
    ),
    entity="t.user",
)
