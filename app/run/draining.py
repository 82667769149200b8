"""The end of a run that reads what there is: what is decided there, and what waits."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from app.archive_names import ARCHIVE
from app.tables import checkpoints
from app.terminal.moments import instant_of

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.run.progress import Figures, Progress
    from app.run.queries import Queries


class Drain:
    """Decides behind the last record what would wait for later ones, once."""

    def __init__(self, settings: Settings, queries: Queries, progress: Progress) -> None:
        self._settings, self._queries, self._progress = settings, queries, progress
        self._is_done = False
        # By query, the newest time (ms) of records that earlier runs have left undecided; 0 for none.
        self._waiting_ms = {name: self._waits_until(name) for name in queries.groups}

    def begins(self) -> bool:
        """Once: plan for each query of jobs a batch without records whose clock is the end of the
        window of the stream's last record, and start it. Returns whether there is one.
        """
        if self._is_done:
            return False
        self._is_done = True
        self._progress.look(self._queries.every)  # their last batches
        found = {name: self._end_ms(name) for name in self._queries.groups if name != ARCHIVE}
        ends_ms = {name: ms for name, ms in found.items() if ms is not None}
        for name, end_ms in ends_ms.items():
            now_ms = time.time_ns() // 1_000_000
            checkpoints.plan_without_records(self._settings.location, name, end_ms, now_ms)
            self._queries.start(name)
        if ends_ms:
            self._progress.say(
                f"end of the input: every record is decided, and clocks move to"
                f" {instant_of(max(ends_ms.values()))}; records before it that come later are"
                " TOO_LATE"
            )
        return bool(ends_ms)

    def _end_ms(self, name: str) -> int | None:
        """Where the clocks of a query are to stand behind its last record (ms); None where they
        stand there, or where there is no record.
        """
        location = self._settings.location
        latest_ms = max(
            self._waiting_ms[name],
            _latest_ms(each for each in self._progress.figures if each.name == name),
            checkpoints.require_identity(location, name).polled_ms,
        )
        last = checkpoints.last_ended(location, name)
        clock_ms = checkpoints.next_watermark_ms(location, name, last)
        end_ms = self._settings.window_end_ms(latest_ms)
        return end_ms if latest_ms and end_ms > clock_ms else None

    def _waits_until(self, name: str) -> int:
        """The newest time (ms) of records that are undecided as far as the query's clock tells: it
        follows the newest record by `idle_advance_ms`, until a drain moves it. 0 for none.
        """
        location = self._settings.location
        last = checkpoints.last_ended(location, name)
        clock_ms = checkpoints.next_watermark_ms(location, name, last)
        is_decided = not clock_ms or checkpoints.is_drain(location, name, last)
        return 0 if is_decided else clock_ms + self._settings.idle_advance_ms


def say_what_waits(progress: Progress) -> None:
    """Say that the newest records are stored and not decided: clocks follow the records."""
    if newest_ms := _latest_ms(progress.figures):
        progress.say(
            f"end of the input at {instant_of(newest_ms)}: the newest records of each key"
            " (allowed_lateness_ms) are stored and not decided yet; its next record decides"
            " them, or --drain where none will come"
        )


def _latest_ms(figures: Iterable[Figures]) -> int:
    """The time of the newest record of some queries (ms); 0 without any."""
    return round(max((each.latest_event_s or 0.0 for each in figures), default=0.0) * 1000)
