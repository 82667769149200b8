"""Polls at an interval into a spool folder: what all polled feeds share."""

from __future__ import annotations

import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from app.config.base import Polled
from app.errors import UserError, reason
from app.sources.lasting import SHOWN, Problems
from app.sources.poll_records import Record, common
from app.sources.spool import Spool, none_of
from app.terminal.printable import printable, say
from app.terminal.secrets import without_secrets
from state.events import EVERY_BROKER


class Unanswered(Exception):
    """No answer that can be used, after every attempt."""


def told(error: Exception) -> str:
    """An error in a few words; with its class where it was not made for people."""
    if isinstance(error, Unanswered | UserError):
        return str(error)
    return f"{type(error).__name__}: {reason(error)}"


@contextmanager
def noted(problems: list[str], about: str = "") -> Iterator[None]:
    """A block in which anything may fail without more loss than what the block is for: an answer may
    be anything. `about` it the failure is a problem.

    An error of the configuration passes, since it holds for all of the poll.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, UserError) and not isinstance(error, Unanswered):
            raise
        problems.append(f"{about}{told(error)}")


MOST_OF_PROBLEM = 1000
"""Characters of a problem in the record of its poll."""


@dataclass
class Report:
    """The result of one poll."""

    feed: str
    what: str
    """What is counted."""
    polled: int = 0
    """Topics whose documents came."""
    gone: int = 0
    """Topics of an earlier poll that no longer exist."""
    absent: int = 0
    """Topics that the settings name and the broker does not have."""
    skipped: int = 0
    """Topics that this poll leaves out."""
    records: int = 0
    took_ms: int = 0
    problems: list[str] = field(default_factory=list)
    """Missing answers and answers that could not be used."""
    answered: bool = True
    """Whether the poll was answered at all."""

    def heading(self) -> str:
        """The report in one line."""
        return (
            f"{self.feed}: {self.polled} {self.what} polled, {self.skipped} skipped, "
            f"{self.gone} gone, {self.records} records, {self.took_ms / 1000:.1f} s"
        )

    def text(self) -> str:
        """The report in one line, and one more for each of the first problems."""
        more = len(self.problems) - SHOWN
        rest = [f"  and {more} more"] if more > 0 else []
        return "\n".join([self.heading(), *(f"  {text}" for text in self.problems[:SHOWN]), *rest])

    def count(
        self, polled: int, skipped: Collection[Any], gone: Collection[Any], problems: Iterable[str]
    ) -> None:
        """What the answers to a poll have and lack."""
        self.polled, self.skipped, self.gone = polled, len(skipped), len(gone)
        self.problems += problems

    def lack(self, about: str, names: Collection[str]) -> None:
        """Things that the settings name and the cluster does not have."""
        self.absent += len(names)
        self.problems += [f"{about}{name}: does not exist" for name in sorted(names)]

    def fail(self, why: str, skipped: int) -> None:
        """Without an answer the poll leaves out everything."""
        self.answered = False
        self.problems.insert(0, why)
        self.polled = self.gone = self.absent = self.records = 0
        self.skipped = skipped


@dataclass(frozen=True)
class Begun:
    """The start of a poll on both clocks, and its time limit."""

    now_ms: int
    at_s: float
    longest_s: float

    @property
    def deadline(self) -> float:
        """The end of the poll, on the clock of `time.monotonic`."""
        return self.at_s + self.longest_s

    def clock_ms(self) -> int:
        """The time now, as the poll counts it."""
        return self.now_ms + int((time.monotonic() - self.at_s) * 1000)


class Client(Protocol):
    """What asks one cluster."""

    def close(self) -> None:
        """End it; the next request may open another."""
        ...


S = TypeVar("S", bound=Polled)
C = TypeVar("C", bound=Client)


class Polling(ABC, Generic[S, C]):
    """Polls at an interval into a folder, one file per poll; the base of the polled feeds.

    A feed declares its names, what is remembered of a thing between two polls (`kept`), and its
    client, and has `_poll`: it asks, maps the answers to records, and counts them in the report.
    """

    feed: str
    where: str
    """The settings' place in the configuration."""
    what = "topics"
    """What reports count."""
    kept: Any = dict[str, Any]
    """The type of what is remembered of a thing."""

    def __init__(
        self,
        settings: S,
        folder: Path | str,
        say: Callable[[str], None] | None,
        client: Callable[[threading.Event], C],
    ) -> None:
        """`client` makes the client, whose waits end with the event."""
        self.spool = Spool(Path(folder), settings.cluster, self.where, self.kept)
        self.title = f"{self.feed} {settings.cluster}"
        """The feed's name in the log."""
        self._settings = settings
        self._longest_s = max(settings.interval_ms, settings.timeout_ms) / 1000
        self.needed: Callable[[Sequence[str]], Container[str]] = none_of
        """Picks the names of files that a reader still needs."""
        self._say = say or _to_stderr
        self._stopping = threading.Event()
        self._client = client(self._stopping)
        self._problems = Problems()
        self.last = self._new_report()
        """The result of the last poll."""

    @property
    def records(self) -> Path:
        """The folder of the files."""
        return self.spool.records

    def poll_once(self, now_ms: int) -> Path | None:
        """One poll that begins at `now_ms`; its file.

        Whatever happens in it, the file has a record of the poll, unless the folder cannot be
        written. A UserError is raised all the same: the configuration has to be changed.
        """
        if not self.spool.hold():
            raise UserError(
                f"{self.spool.folder}: another process polls into it\n"
                f"stop it first, or take another folder ({self.where}.spool)"
            )
        self.last = self._new_report()
        begun = Begun(now_ms, time.monotonic(), self._longest_s)
        failed = None
        try:
            path = self._commit(begun, self._poll(begun, self.last))
        except Exception as error:
            failed = error
            self.spool.release()  # half of the poll may be in memory
            if not self.spool.hold():
                raise
            known = isinstance(error, Unanswered)
            self.last.fail(f"{'' if known else 'not polled: '}{told(error)}", self._known())
            path = self._commit(begun, ())
        else:
            self._ended(self.last)
        self.last.took_ms = begun.clock_ms() - now_ms
        if isinstance(failed, UserError):
            raise failed
        return path

    def _known(self) -> int:
        """How many things a poll without an answer leaves out."""
        return len(self.spool.memory.topics)

    @abstractmethod
    def _poll(self, begun: Begun, report: Report) -> Iterable[Record]:
        """Poll and report; returns the records that are not committed yet. Unanswered without any
        answer.
        """

    def _ended(self, report: Report) -> None:
        """The poll is in the folder; a problem of this is one of the log alone."""

    def _new_report(self) -> Report:
        return Report(self.title, self.what)

    def run(self, stop: threading.Event, after_s: float = 0.0) -> None:
        """Poll `after_s` after the start, less whole intervals, and at every multiple of the
        interval after that, until `stop` is set.

        A poll that takes longer than the interval continues at the next multiple. Failures are
        reported and do not end the polling; those of every poll are reported once an hour.
        """
        interval = self._settings.interval_ms / 1000
        threading.Thread(target=self._follow, args=(stop,), daemon=True).start()
        stop.wait(after_s % interval)
        start = time.monotonic()
        due = 0
        waiting = False
        while not stop.is_set():
            try:
                if self.spool.hold():
                    waiting = False
                    self.poll_once(int(time.time() * 1000))
                    if not stop.is_set():
                        self._report_problems(self.last.problems, self.last.answered)
                        if self.last.gone:
                            self._say(self.last.heading())
                elif not waiting:
                    waiting = True
                    self._say(f"{self.title}: another process polls into {self.spool.folder}")
            except Exception as error:  # noqa: BLE001 - the folder cannot be written, for example
                self._failed(error)
            due = max(due, int((time.monotonic() - start) / interval)) + 1
            until = start + due * interval
            self._tick_before(until, stop)
            stop.wait(until - time.monotonic())
        self.close()

    def _tick_before(self, until: float, stop: threading.Event) -> None:
        """Write a tick if one is due before the next poll."""
        tick_ms = self._tick_ms()
        # On the wall clock, as the records are.
        left = None if tick_ms is None else tick_ms / 1000 - time.time()
        if left is not None and left < until - time.monotonic() and not stop.wait(left):
            try:
                self._tick(int(time.time() * 1000))
            except Exception as error:  # noqa: BLE001 - as above
                self._failed(error)

    def _tick_ms(self) -> int | None:
        """When the clocks of the jobs are to be moved, if no poll does it before; None for never."""
        return None

    def _tick(self, now_ms: int) -> None:
        """Write a record that moves the clocks of the jobs."""

    def _failed(self, error: Exception) -> None:
        self.spool.release()
        self._report_problems([f"not polled: {told(error)}"], answered=False)

    def close(self) -> None:
        """End the client, and let another process poll into the folder."""
        self._client.close()
        self.spool.release()

    def _report_problems(self, problems: Iterable[str], answered: bool) -> None:
        for line in self._problems.lines(problems, time.monotonic(), answered):
            self._say(f"{self.title}: {line}")

    def _commit(self, begun: Begun, records: Iterable[Record], *, ends: bool = True) -> Path | None:
        """Write the records of a poll, or of a part of it, as a file, and remove files that are
        old. At the end of the poll, when its report has all problems, a record of it is the last.
        """
        now_ms, keep_ms = begun.now_ms, self._settings.keep_ms
        try:
            first = self.spool.memory.seq
            path = self.spool.commit(now_ms, chain(records, [self._record(begun)] if ends else ()))
            self.last.records += self.spool.memory.seq - first - ends
            # Not by age alone: the clock may be wrong.
            least = max(keep_ms // self._settings.interval_ms, 1)
            self.spool.remove_before(now_ms - keep_ms, least, self.needed)
        except BaseException:
            self.spool.release()  # what is in memory is not what is in the folder
            raise
        return path

    def _record(self, begun: Begun) -> Record:
        """The record of the poll itself."""
        report, cluster = self.last, self.spool.memory.cluster
        return {
            "event_type": "poll",
            **common(self.feed, cluster, EVERY_BROKER, begun.clock_ms()),
            "gap_from_wall_ms": begun.now_ms,
            "dropped": report.skipped if report.answered else None,
            "problem": (
                printable(without_secrets(report.problems[0]))[:MOST_OF_PROBLEM]
                if report.problems
                else None
            ),
        }

    def _follow(self, stop: threading.Event) -> None:
        """End running requests with `stop`."""
        stop.wait()
        self._stopping.set()


AnyPolling = Polling[Any, Any]


def _to_stderr(text: str) -> None:
    say(text, file=sys.stderr, flush=True)
