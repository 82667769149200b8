"""Detects that the wall clock was set back.

Spark schedules the next batch of a query by the wall clock: after a step back by an hour it would
pause for an hour.
"""

from __future__ import annotations

import time
from collections.abc import Callable

LEAST_S = 5.0
"""Smaller steps are ignored; the pause that they cause is short."""


class ClockWatch:
    """Compares the wall clock with the monotonic clock."""

    def __init__(
        self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall, self._steady = wall, steady
        self._apart_s = wall() - steady()

    def step_back_s(self) -> float:
        """Seconds by which the wall clock was set back since the last call; 0 if it was not."""
        apart_s = self._wall() - self._steady()
        back_s = self._apart_s - apart_s
        if 0 <= back_s < LEAST_S:
            return 0.0  # small steps add up
        self._apart_s = apart_s
        return max(back_s, 0.0)
