"""What a replay says while it works: a line every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

from app.terminal.amounts import seconds_text
from app.terminal.counts import counted
from app.terminal.printable import say

SAY_EVERY_S = 5.0


class ReplayProgress:
    """How far the two stages of a replay are, and the time that is left of the present one.

    All records are read before the first part is judged. Parts differ in size: of their time left
    the packed bytes tell more than their number.
    """

    def __init__(
        self,
        records: int,
        parts: int,
        every_s: float = SAY_EVERY_S,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Records to read and parts to judge; a line at most every so many seconds."""
        self._records, self._parts, self._every_s = records, parts, every_s
        self._clock_s = clock_s
        self._read = self._judged = self._packed_bytes = self._judged_bytes = 0
        self._began_s = self._said_s = self._last_read_s = clock_s()

    def read(self, records: int, packed_bytes: int) -> None:
        """More records are packed, into so many bytes."""
        self._read += records
        self._packed_bytes += packed_bytes
        self._last_read_s = self._clock_s()
        took_s = self._last_read_s - self._began_s
        left = _left(took_s, self._read, self._records)
        self._say(
            f"read {self._read:,} of {self._records:,} records, "
            f"{self._read / max(took_s, 0.001):,.0f} a second{left}, "
            f"then {counted(self._parts, 'part')} to judge"
        )

    def judged(self, parts: int, packed_bytes: int) -> None:
        """More parts are judged, of so many packed bytes."""
        self._judged += parts
        self._judged_bytes += packed_bytes
        took_s = self._clock_s() - self._last_read_s
        left = _left(took_s, self._judged_bytes, self._packed_bytes)
        self._say(f"judged {self._judged} of {counted(self._parts, 'part')}{left}")

    def _say(self, text: str) -> None:
        now_s = self._clock_s()
        if now_s - self._said_s >= self._every_s:
            self._said_s = now_s
            say(text, flush=True)

    def end(self, records: int, rows: int) -> None:
        """All is committed: so many records led to so many rows."""
        took_s = self._clock_s() - self._began_s
        say(
            f"{counted(records, 'record')} in {took_s:,.1f} s "
            f"({records / max(took_s, 0.001):,.0f} a second), "
            f"{counted(rows, 'row')} written",
            flush=True,
        )


def _left(took_s: float, done: int, all_: int) -> str:
    """The time left of a stage at its pace so far; nothing without a pace."""
    return f", {seconds_text(took_s * max(all_ - done, 0) / done)} left" if done else ""
