"""What a broker answers of a quota beside its decisions."""

from __future__ import annotations


def remaining_throttle(throttle_ms: int, decided_ms: int, now: int) -> int:
    """What is left at `now` of a throttle time (ms) that was decided at `decided_ms`."""
    return max(throttle_ms - (now - decided_ms), 0)


def largest_in_window(bound: float, samples: int, window_ms: int) -> float:
    """The largest value allowed in one quota window: bound * (samples - 1) * W."""
    return bound * (samples - 1) * (window_ms / 1000.0)
