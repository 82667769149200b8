"""When polls come, on a clock of the test."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.ingest.pollers import polling
from app.ingest.pollers.polling import Begun, Polling, Report
from app.ingest.pollers.spool import Spool


@dataclass(frozen=True)
class Settings:
    interval_ms: int = 200
    timeout_ms: int = 1000
    keep_ms: int = 60_000


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


class Feed(Polling):
    """Polls that take a time and note when they began."""

    feed, where = "feed", "source.feed"

    def __init__(self, folder: Path, clock: Clock, took_ms: list[float]) -> None:
        super().__init__(Settings(), Spool(folder, "c"), lambda text: None)
        self._clock, self._took_ms = clock, took_ms
        self.began_ms: list[int] = []

    def _poll(self, begun: Begun, report: Report) -> None:
        self.began_ms.append(round(begun.at_s * 1000) - 1_000)
        self._clock.ms += self._took_ms[min(len(self.began_ms), len(self._took_ms)) - 1]


@pytest.mark.parametrize(("took_ms", "began_ms"), [
    ([0], [0, 200, 400, 600, 800, 1000]),
    ([150, 20, 199], [0, 200, 400, 600, 800, 1000]),
    ([250], [0, 400, 800]),
    ([0, 650, 0], [0, 200, 1000]),
])
def test_polls_come_at_multiples_of_the_interval_and_do_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, took_ms: list[float], began_ms: list[int]
) -> None:
    clock = Clock()
    monkeypatch.setattr(polling, "time", SimpleNamespace(
        monotonic=clock.monotonic, time=clock.time))
    feed = Feed(tmp_path, clock, took_ms)
    feed.run(Stop(clock, 2_100))
    assert feed.began_ms == began_ms
