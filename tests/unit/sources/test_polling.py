"""When polls come, on a clock of the test."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.config.base import Polled
from app.errors import UserError
from app.sources import polling
from app.sources.poll_records import Record
from app.sources.polling import Begun, Polling, Report, Unanswered


def settings(**keys: Any) -> Polled:
    return Polled.model_validate({"cluster": "c", "interval_ms": 200, "timeout_ms": 1000, **keys})


class Clock:
    """A clock that waiting and polling advance."""

    def __init__(self) -> None:
        self.ms = 1_000.0

    def monotonic(self) -> float:
        return self.ms / 1000

    def time(self) -> float:
        return 1_700_000_000 + self.ms / 1000


class Stop(threading.Event):
    """It is set at a time of the clock; waiting for it takes none."""

    def __init__(self, clock: Clock, at_ms: float) -> None:
        super().__init__()
        self._clock, self._at_ms = clock, at_ms

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is None:
            return super().wait()
        self._clock.ms = min(self._clock.ms + max(timeout, 0) * 1000, self._at_ms)
        if self._clock.ms >= self._at_ms:
            self.set()
        return self.is_set()


class Away:
    """A client that asks nothing."""

    def close(self) -> None:
        """Nothing is open."""


class Feed(Polling[Polled, Away]):
    """Polls that take a time and note when they began."""

    feed, where = "feed", "source.feed"

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        took_ms: list[float],
        given: Polled | None = None,
        problems: Callable[[int], list[str] | str] = lambda poll: [],
    ) -> None:
        """`problems` are those of a poll, by its number from 0; a text = no answer at all."""
        super().__init__(given or settings(), folder, lambda text: None, lambda stop: Away())
        self._clock, self._took_ms, self._of = clock, took_ms, problems
        self.began_ms: list[int] = []

    def _poll(self, begun: Begun, report: Report) -> list[Record]:
        found = self._of(len(self.began_ms))
        self.began_ms.append(round(begun.at_s * 1000) - 1_000)
        self._clock.ms += self._took_ms[min(len(self.began_ms), len(self._took_ms)) - 1]
        if found == "broken":
            raise UserError("the disk is full")
        if isinstance(found, str):
            raise Unanswered(found)
        report.problems += found
        return []


@pytest.mark.parametrize(
    ("took_ms", "began_ms"),
    [
        ([0], [0, 200, 400, 600, 800, 1000]),
        ([150, 20, 199], [0, 200, 400, 600, 800, 1000]),
        ([250], [0, 400, 800]),
        ([0, 650, 0], [0, 200, 1000]),
    ],
)
def test_polls_come_at_multiples_of_the_interval_and_do_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, took_ms: list[float], began_ms: list[int]
) -> None:
    clock = Clock()
    monkeypatch.setattr(
        polling, "time", SimpleNamespace(monotonic=clock.monotonic, time=clock.time)
    )
    feed = Feed(tmp_path, clock, took_ms)
    feed.run(Stop(clock, 2_100))
    assert feed.began_ms == began_ms


DARK, DENIED, AWAY = "partition dark/0: has no leader", "group a: denied", "the list: no answer"


@pytest.mark.parametrize(
    ("problems", "said"),
    [
        # A problem of every poll: when it begins, and when it has ended.
        (
            lambda poll: [DARK] * (2 <= poll < 9),
            [
                (2, "partition dark/0: has no leader"),
                (10, "ended: partition dark/0: has no leader (7 polls, 360 s)"),
            ],
        ),
        # Two at once are one line; the second one ends first; the words of the first one change.
        (
            lambda poll: [
                DARK.replace("has no leader", "timed out") if poll > 3 else DARK,
                *[DENIED] * (poll < 3),
            ],
            [
                (0, "partition dark/0: has no leader; group a: denied"),
                (4, "ended: group a: denied (3 polls, 120 s)"),
                (60, "still partition dark/0: timed out (61 polls, 3,600 s)"),
                (120, "still partition dark/0: timed out (121 polls, 7,200 s)"),
            ],
        ),
        # Missing in one poll is not an end, nor are polls without any answer.
        (
            lambda poll: [DARK] * (poll not in (1, 3)) if poll < 5 else AWAY if poll < 9 else [],
            [
                (0, DARK),
                (5, AWAY),
                (10, f"ended: {DARK} (3 polls, 240 s); {AWAY} (4 polls, 180 s)"),
            ],
        ),
        (
            lambda poll: "broken" if poll < 90 else [],
            [
                (0, "not polled: the disk is full"),
                (60, "still not polled: the disk is full (61 polls, 3,600 s)"),
                (91, "ended: not polled: the disk is full (90 polls, 5,340 s)"),
            ],
        ),
        (
            lambda poll: [f"t{n}: denied" for n in range(99)] if poll < 2 else [],
            [
                (0, "t0: denied; t1: denied; t2: denied; and 96 more"),
                (
                    3,
                    "ended: t0: denied (2 polls, 60 s); t1: denied (2 polls, 60 s); t2: denied (2 polls,"
                    " 60 s); and 96 more",
                ),
            ],
        ),
    ],
)
def test_a_lasting_problem_is_reported_once_an_hour(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    problems: Callable[[int], list[str] | str],
    said: list[tuple[int, str]],
) -> None:
    clock = Clock()
    monkeypatch.setattr(
        polling, "time", SimpleNamespace(monotonic=clock.monotonic, time=clock.time)
    )
    minute = 60_000
    feed = Feed(tmp_path, clock, [0], settings(interval_ms=minute), problems)
    when: list[tuple[int, str]] = []
    monkeypatch.setattr(feed, "_say", lambda text: when.append((len(feed.began_ms) - 1, text)))
    feed.run(Stop(clock, 1_000 + 125.5 * minute))
    assert when == [(poll, f"feed c: {text}") for poll, text in said]
