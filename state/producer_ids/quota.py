"""What a user's quota on producer ids adds to Kafka's arithmetic (`state.engine.kafka_quota`)."""

from __future__ import annotations

from state.engine.kernel import Int, codes, compiled

MATHS = ("token_bucket", "sampled_rate")
TOKEN_BUCKET, SAMPLED_RATE = codes(2)
UNITS = ("window", "second")
PER_WINDOW, PER_SECOND = codes(2)
COUNTED, THROTTLED, REJECTED = codes(3)
FROM_USER, FROM_DEFAULT_USER, FROM_NOWHERE = codes(3)
UNLIMITED = {"long": float(2**63 - 1), "int": float(2**31 - 1)}
"""Bound of a user without a quota, by `unlimited_default`."""


@compiled
def bound_in_force(own: float, default: float, unlimited: float) -> tuple[float, Int]:
    """Bound of a user and its source (place in SOURCES): own, default user's, unlimited.

    NaN for one that is not set.
    """
    if own == own:
        return own, FROM_USER
    if default == default:
        return default, FROM_DEFAULT_USER
    return unlimited, FROM_NOWHERE


@compiled
def bound_per_second(bound: float, window_ms: int, unit: int) -> float:
    """A configured bound, per window or per second (place in UNITS), as ids per second."""
    return bound / (window_ms / 1000.0) if unit == PER_WINDOW else bound
