"""Warns of records whose times are far from those of the others."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from app.engine.messages import MessageKind
from state.engine.refused import FAR_MS

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.run.progress import Progress

AGAIN_S = 60.0


class Times:
    """Warns of records that come too late or are ahead, with the value that would do.

    Of late ones once per larger value, of those that are late by more than a month once, of those
    ahead once in AGAIN_S.
    """

    def __init__(self, settings: Settings, progress: Progress) -> None:
        self._allowed_ms, self._skew_ms = settings.idle_advance_ms, settings.clock_skew_ms
        self._progress = progress
        self._said_s, self._far_said = -AGAIN_S, False

    def __call__(self, kind: MessageKind, needed_ms: int) -> None:
        """Called by the committer; `needed_ms` would have kept them, or let them move the clocks."""
        if kind is MessageKind.LATE and needed_ms > FAR_MS:
            if not self._far_said:
                self._far_said = True
                self._progress.warn(
                    f"TOO_LATE: records are dated {needed_ms / 86_400_000:,.0f} days before the "
                    "others; they are in quarantine\nset the clock of who wrote them; the "
                    "columns broker and source_partition of quarantine name it"
                )
        elif kind is MessageKind.LATE and needed_ms > self._allowed_ms:
            self._allowed_ms = needed_ms
            self._progress.warn(
                "TOO_LATE: records came for keys that had been silent for longer than idle_advance_ms"
                f" allows; they are in quarantine\nidle_advance_ms: {needed_ms} would have kept them"
            )
        if kind is MessageKind.AHEAD and time.monotonic() - self._said_s >= AGAIN_S:
            self._said_s = time.monotonic()
            self._progress.warn(
                f"records are dated up to {needed_ms / 1000:,.0f} s after this machine's time and "
                "wait until then: one of the two clocks is wrong\nset the clock of this machine, "
                f"or clock_skew_ms: {needed_ms} (now {self._skew_ms}) for a feed that is ahead"
            )
