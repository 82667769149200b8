"""Detects that the wall clock was set back, and restarts queries that wait for a time before it.

Spark schedules the next batch of a query by the wall clock: after a step back by an hour it would
pause for an hour.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from app.archive_names import ARCHIVE
from app.run.shutdown import waits

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.run.queries import Queries

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


class Misled:
    """Queries of an endless run that wait for a time that the wall clock has left by a step back."""

    def __init__(self, settings: Settings, queries: Queries, warn: Callable[[str], None]) -> None:
        self._settings, self._queries, self._warn = settings, queries, warn
        self._clock = ClockWatch()
        self._names: set[str] = set()

    def look(self) -> None:
        """Restart those whose batch has ended."""
        back_s = self._clock.step_back_s()
        if back_s and self._queries.endless:
            pause_ms = dict.fromkeys(self._queries.groups, self._settings.pause_ms)
            if ARCHIVE in pause_ms:
                pause_ms[ARCHIVE] = self._settings.archive_interval_ms
            self._names |= {name for name, pause in pause_ms.items() if pause}
            self._warn(f"the clock was set back by {back_s:.0f} s")
        for name in sorted(self._names):
            query = self._queries.started[name]
            if not query.isActive:
                self._names.discard(name)
            elif waits(query):
                query.stop()
                self._queries.start(name)
                self._names.discard(name)
