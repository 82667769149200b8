"""What a replay says while it works: a line every few seconds."""

from __future__ import annotations

import time

from app.terminal.counts import counted
from app.terminal.printable import say

SAY_EVERY_S = 5.0


class ReplayProgress:
    """How far the two stages of a replay are."""

    def __init__(self, records: int, parts: int, every_s: float = SAY_EVERY_S) -> None:
        """Records to read and parts to judge; a line at most every so many seconds."""
        self._records, self._parts, self._every_s = records, parts, every_s
        self._read = self._judged = 0
        self._began = self._said = time.monotonic()

    def read(self, records: int) -> None:
        """More records are packed."""
        self._read += records
        seconds = time.monotonic() - self._began
        self._say(
            f"read {self._read:,} of {self._records:,} records, "
            f"{self._read / max(seconds, 0.001):,.0f} a second"
        )

    def judged(self, parts: int = 1) -> None:
        """More parts are judged."""
        self._judged += parts
        self._say(f"judged {self._judged} of {counted(self._parts, 'part')}")

    def _say(self, text: str) -> None:
        now = time.monotonic()
        if now - self._said >= self._every_s:
            self._said = now
            say(text, flush=True)

    def end(self, records: int, rows: int) -> None:
        """All is committed: so many records led to so many rows."""
        took = time.monotonic() - self._began
        say(
            f"{counted(records, 'record')} in {took:,.1f} s "
            f"({records / max(took, 0.001):,.0f} a second), "
            f"{counted(rows, 'row')} written",
            flush=True,
        )
