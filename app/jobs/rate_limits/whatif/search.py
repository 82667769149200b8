"""Searches for the smallest limit under which at most a share of a name's traffic is throttled, for
the smallest pair of limits, and computes the curve around a limit.

A larger limit holds more tokens at every moment, so bisection finds the limit. The result keeps the
share, and the next smaller limit does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from state.rate_limits.alone import Effect, Rules, Trace, beyond, effect
from state.rate_limits.bucket import LARGEST

MOST = int(LARGEST)
PARTS = 1000
"""Parts of the factor by which the limits of a pair are raised together."""
Rate = TypeVar("Rate", bound=str)
FACTORS = (0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 3.0)
"""Points of the curve, as multiples of the smallest limit."""


@dataclass(frozen=True)
class LimitPoint:
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
    return _least(0, high, enough)


def smallest_pair(
    traces: Mapping[Rate, Trace], alone: Mapping[Rate, int], share: float, rules: Rules
) -> dict[Rate, int]:
    """The limits of several rates that together throttle at most `share` of each: those that each
    needs `alone` if they do, else none that is larger than need be beside the others.

    All are raised by one factor first, the smallest that is enough, and then each is lowered again
    as far as the others allow, in order.
    """
    limits = dict(alone)

    def enough(tried: Mapping[Rate, int]) -> bool:
        return all(one <= share for one in together(traces, tried, rules).values())

    def raised(parts: int) -> dict[Rate, int]:
        return {
            rate: min(-(-limit * (PARTS + parts) // PARTS), MOST) for rate, limit in alone.items()
        }

    if enough(limits):
        return limits
    most = 1
    while not enough(raised(most)):
        most *= 2
        if all(limit == MOST for limit in raised(most).values()):
            break
    limits = raised(_least(most // 2, most, lambda parts: enough(raised(parts))))
    for rate, limit in limits.items():

        def enough_with(one: int, rate: Rate = rate) -> bool:
            return enough({**limits, rate: one})

        limits[rate] = _least(alone[rate] - 1, limit, enough_with)
    return limits


def together(
    traces: Mapping[Rate, Trace], limits: Mapping[Rate, int], rules: Rules
) -> dict[Rate, float]:
    """The share of each rate's messages or bytes in publishes that any of the limits throttles. The
    traces have the same records."""
    none = next(iter(traces.values())).kind < 0
    throttled = none
    for rate, limit in limits.items():
        throttled = throttled | beyond(traces[rate], limit, rules)
    return {
        rate: float(traces[rate].amount[throttled].sum(dtype=float)) / (traces[rate].total or 1.0)
        for rate in limits
    }


def _least(low: int, high: int, enough: Callable[[int], bool]) -> int:
    """The least number above `low` that is enough; `high` is."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def point(trace: Trace, limit: int, rules: Rules) -> LimitPoint:
    """The effects of a limit."""
    found: Effect = effect(trace, limit, rules)
    total = trace.total
    return LimitPoint(
        limit,
        found.throttled / total if total else 0.0,
        found.pauses,
        found.paused_ns / 1e9,
        found.victim_ns / 1e9,
    )


def curve(trace: Trace, needed: int, rules: Rules, *more: int) -> list[LimitPoint]:
    """The points around the smallest limit, and those of `more`, from the smallest on."""
    limits = {min(max(round(factor * needed), 1), MOST) for factor in FACTORS}
    return [point(trace, limit, rules) for limit in sorted({*limits, needed, *more})]
