"""What a run looks at in turn while its queries work."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple


class Watch(NamedTuple):
    """One look, and the least time between two (s)."""

    look: Callable[[], object]
    every_s: float = 0.0


class Rounds:
    """Watches in their order."""

    def __init__(self, *watches: Watch) -> None:
        began_s = time.monotonic()
        self._due_s = {watch: began_s + watch.every_s for watch in watches}

    def look(self) -> None:
        """One round: each that is due."""
        for watch, due_s in self._due_s.items():
            if time.monotonic() >= due_s:
                watch.look()
                self._due_s[watch] = time.monotonic() + watch.every_s
