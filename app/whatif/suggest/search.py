"""Searches for the smallest limit under which at most a share of a name's traffic is throttled, and
computes the curve around it.

A larger limit holds more tokens at every moment, so bisection finds the limit. The result keeps the
share, and the next smaller limit does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from state.rate_limits.alone import Effect, Rules, Trace, effect
from state.rate_limits.bucket import LARGEST

MOST = int(LARGEST)
FACTORS = (0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 3.0)
"""Points of the curve, as multiples of the smallest limit."""


@dataclass(frozen=True)
class Point:
    """A limit and its effects on a name."""

    limit: int
    throttled_share: float
    pauses: int
    paused_s: float
    victim_s: float


def smallest(trace: Trace, share: float, rules: Rules) -> int | None:
    """The smallest limit (1 to 2**63 - 1 per second) that throttles at most `share` (0 to 1) of the
    messages or bytes; None if none does.
    """
    allowed = share * trace.total

    def enough(limit: int) -> bool:
        return effect(trace, limit, rules).throttled <= allowed

    # a bucket that holds more than everything is never empty
    high = min(int(trace.total) + 1, MOST)
    if not enough(high):
        high = MOST
        if not enough(high):
            return None
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def point(trace: Trace, limit: int, rules: Rules) -> Point:
    """The effects of a limit."""
    found: Effect = effect(trace, limit, rules)
    total = trace.total
    return Point(
        limit, found.throttled / total if total else 0.0, found.pauses, found.paused_ns / 1e9,
        found.victim_ns / 1e9,
    )


def curve(trace: Trace, needed: int, rules: Rules, *more: int) -> list[Point]:
    """The points around the smallest limit, and those of `more`, from the smallest on."""
    limits = {min(max(round(factor * needed), 1), MOST) for factor in FACTORS}
    return [point(trace, limit, rules) for limit in sorted({*limits, needed, *more})]


def with_headroom(needed: int, headroom: float) -> int:
    """A limit with a share of itself on top, rounded up."""
    on_top = headroom * needed
    return min(needed + math.ceil(on_top), MOST) if math.isfinite(on_top) else MOST


