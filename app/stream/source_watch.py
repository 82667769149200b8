"""Whether the source of a run answers and has records: a line when that changes, and none else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from app.errors import UserError
from app.ingest import sources

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.stream.progress import Figures

Say = Callable[[str], None]
ASKED_AFTER_S = 15.0
"""A source that gives no records for so long is asked whether it is there, and again after this."""
ASKED_AGAIN_S = 5.0
"""The same for one that did not answer the last time."""
SILENT_AFTER_S = 60.0
WATCHED = ("kafka", "kafka_messages", "files", "delta")
"""Formats whose source Spark asks; sources that poll report by themselves."""


class SourceWatch:
    """Tells what a run's source is doing from the records that its queries read."""

    def __init__(
        self, settings: Settings, say: Say, warn: Say, *, silence: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """With `silence` a source that answers and has no records is reported as well."""
        self._settings, self._say, self._warn, self._clock = settings, say, warn, clock
        self._asks = settings.feed.format in WATCHED
        self._silence = silence
        self._events = -1
        self._read_s = self._asked_s = self._quiet_s = clock()
        self._silent = False
        self._gone_s: float | None = None
        self._problem = ""
        self._answer: list[str] = []
        self._question: threading.Thread | None = None

    @property
    def problem(self) -> str:
        """Why the source does not answer; empty as far as is known."""
        return self._problem

    def look(self, figures: Sequence[Figures], busy: bool = False) -> None:
        """Take in what the queries have read so far; ask the source where that is nothing new.

        While one is `busy` with a batch the source is not called silent.
        """
        now_s = self._clock()
        if busy:
            self._quiet_s = now_s
        events = sum(one.events for one in figures)
        if events > self._events:
            # What they had read before the first look is no news.
            first, self._events = self._events < 0, events
            if not first or events:
                self._is_back(now_s, "records again")
                self._read_s = self._quiet_s = now_s
            return
        if self._asks:
            self._take_answer(now_s)
            pause_s = ASKED_AFTER_S if self._gone_s is None else ASKED_AGAIN_S
            if self._question is None and now_s - max(self._read_s, self._asked_s) >= pause_s:
                self._ask(now_s)
        silent = self._silence and self._gone_s is None and not self._silent
        if silent and now_s - self._quiet_s >= SILENT_AFTER_S:
            self._silent = True
            silent_s = now_s - self._read_s
            self._say(f"source: no records for {silent_s:.0f} s; the run waits for them")

    def _ask(self, now_s: float) -> None:
        """Ask beside the queries: an answer may take its time-out."""
        self._asked_s = now_s
        self._question = threading.Thread(target=self._try, name="source-watch", daemon=True)
        self._question.start()

    def _try(self) -> None:
        try:
            sources.check(self._settings)
        except UserError as error:
            self._answer.append(str(error).splitlines()[0])
        except Exception as error:  # noqa: BLE001 - the queries meet it as well and say what it is
            self._answer.append(f"{type(error).__name__}: {error}")
        else:
            self._answer.append("")

    def _take_answer(self, now_s: float) -> None:
        if self._question is None or self._question.is_alive():
            return
        self._question = None
        (problem,) = self._answer
        self._answer.clear()
        if not problem:
            if self._gone_s is not None:
                self._is_back(now_s, "answers again")
                self._quiet_s = now_s
        elif self._gone_s is None:
            self._gone_s, self._problem = now_s, problem
            self._warn(f"source: {problem}; the run waits and goes on by itself")
        elif problem != self._problem:
            self._problem = problem
            self._warn(f"source: {problem}")

    def _is_back(self, now_s: float, how: str) -> None:
        """Say that the source is there again, if it was said that it is not."""
        if self._gone_s is not None:
            self._say(f"source: {how} after {now_s - self._gone_s:.0f} s")
        elif self._silent:
            self._say(f"source: {how} after {now_s - self._read_s:.0f} s without")
        self._gone_s, self._silent, self._problem = None, False, ""
