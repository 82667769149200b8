"""Watches whether the source of a run answers and has records; logs changes only."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from app import sources
from app.errors import LastingError, UserError, reason

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.run.progress import Figures

Say = Callable[[str], None]
ASKED_AFTER_S = 15.0
"""Time without records after which a source is checked, and checked again."""
ASKED_AGAIN_S = 5.0
"""The time between checks of a source that did not answer."""
SILENT_AFTER_S = 60.0
WATCHED = ("kafka", "kafka_messages", "pulsar", "pulsar_messages", "files", "delta")
"""Formats that are checked here; polled sources report their own failures."""


class SourceWatch:
    """Derives the state of a run's source from the records that its queries read."""

    def __init__(
        self,
        settings: Settings,
        say: Say,
        warn: Say,
        *,
        silence: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """With `silence` a source that answers and has no records is also reported."""
        self._settings, self._say, self._warn, self._clock = settings, say, warn, clock
        self._asks = settings.streamed is not None and settings.streamed.format in WATCHED
        self._silence = silence
        self._events = -1
        self._read_s = self._asked_s = self._quiet_s = clock()
        self._silent = False
        self._gone_s: float | None = None
        self._problem = ""
        self._answer: list[str] = []
        self._lasting: LastingError | None = None
        self._question: threading.Thread | None = None

    @property
    def problem(self) -> str:
        """Why the source does not answer; empty if it does or was not checked."""
        return self._problem

    def look(self, figures: Sequence[Figures], busy: bool = False) -> None:
        """Record the number of records read so far; check the source if there are no new ones.

        While a query is `busy` with a batch the source is not reported as silent. Raises
        LastingError for a problem that the run cannot wait for.
        """
        now_s = self._clock()
        if busy:
            self._quiet_s = now_s
        events = sum(one.events for one in figures)
        if events > self._events:
            # Records read before the first look are not reported.
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
            self._say(
                f"source: no records for {now_s - self._read_s:.0f} s; the run waits for them"
            )

    def _ask(self, now_s: float) -> None:
        """Check the source on a separate thread: an answer may take the whole time-out."""
        self._asked_s = now_s
        self._question = threading.Thread(target=self._try, name="source-watch", daemon=True)
        self._question.start()

    def _try(self) -> None:
        try:
            sources.check_all(self._settings)
        except LastingError as error:
            self._lasting = error
            self._answer.append("")
        except UserError as error:
            self._answer.append(reason(error))
        except Exception as error:  # noqa: BLE001 - the queries meet and report it as well
            self._answer.append(f"{type(error).__name__}: {reason(error)}")
        else:
            self._answer.append("")

    def _take_answer(self, now_s: float) -> None:
        if self._question is None or self._question.is_alive():
            return
        self._question = None
        if self._lasting is not None:
            raise self._lasting
        (problem,) = self._answer
        self._answer.clear()
        if not problem:
            if self._gone_s is not None:
                self._is_back(now_s, "answers again")
                self._quiet_s = now_s
        elif self._gone_s is None:
            self._gone_s, self._problem = now_s, problem
            self._warn(f"source: {problem}; the run waits and continues when it answers")
        elif problem != self._problem:
            self._problem = problem
            self._warn(f"source: {problem}")

    def _is_back(self, now_s: float, how: str) -> None:
        """Report that the source is back, if it was reported missing."""
        if self._gone_s is not None:
            self._say(f"source: {how} after {now_s - self._gone_s:.0f} s")
        elif self._silent:
            self._say(f"source: {how} after {now_s - self._read_s:.0f} s without records")
        self._gone_s, self._silent, self._problem = None, False, ""
