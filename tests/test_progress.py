"""The figures that a run shows."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

from app import progress as module
from app.progress import Progress

NOW_S = 1_770_000_100.0


def batch(number: int, events: int, **more: Any) -> dict[str, Any]:
    """The progress of a batch, as much of it as is looked at."""
    return {
        "batchId": number, "numInputRows": 3, "durationMs": {"triggerExecution": 500},
        "batchDuration": 500, "observedMetrics": {"records": {"records": events}},
        "eventTime": {"max": "2026-02-02T02:41:30.000Z"},
        "stateOperators": [
            {"memoryUsedBytes": 2_000_000, "customMetrics": {"rocksdbSstFileSize": 500_000}}
        ],
        **more,
    }


def query(name: str, *batches: dict[str, Any]) -> Any:
    """A query that has done these batches."""
    return SimpleNamespace(name=name, recentProgress=batches, lastProgress=(*batches, None)[-2])


class Terminal(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        """It is one."""
        return True


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look is shown, at one moment."""
    monkeypatch.setattr(module, "IN_LOG_S", 0.0)
    monkeypatch.setattr(module, "ON_TERMINAL_S", 0.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 1.0, time=lambda: NOW_S))


def test_a_log_gets_a_line_when_the_figures_change() -> None:
    out = io.StringIO()
    shown = Progress(out)
    archive = query("archive", batch(0, 400, eventTime={}, stateOperators=[]))
    for batches in ([batch(0, 1000)], [batch(0, 1000)], [batch(0, 1000), batch(1, 3000)]):
        shown.look([query("rate_limits", *batches), archive])
    shown.close()
    tail = "archive: 800 events/s, batch 0.50 s"
    assert out.getvalue().splitlines() == [
        f"rate_limits: 2,000 events/s, batch 0.50 s, 10.0 s behind, state 2.5 MB | {tail}",
        f"rate_limits: 6,000 events/s, batch 0.50 s, 10.0 s behind, state 2.5 MB | {tail}",
        "rate_limits: 4,000 events read, to batch 1",
        "archive: 400 events read, to batch 0",
    ]


def test_a_batch_counts_once_and_missed_ones_are_made_up_for() -> None:
    shown = Progress(io.StringIO())
    shown.look([query("archive", batch(4, 10))])
    shown.look([query("archive", batch(4, 10), batch(5, 20), batch(6, 30))])
    assert shown._figures["archive"].events == 60


def test_events_of_long_ago_are_shown_by_their_date() -> None:
    out = io.StringIO()
    old = batch(0, 1000, eventTime={"max": "2026-01-05T14:00:00.000Z"}, stateOperators=[])
    Progress(out).look([query("rate_limits", old)])
    line = "rate_limits: 2,000 events/s, batch 0.50 s, at 2026-01-05 14:00:00\n"
    assert out.getvalue() == line


def test_a_terminal_has_one_line_that_is_rewritten() -> None:
    out = Terminal()
    shown = Progress(out)
    shown.look([query("archive", batch(0, 1000, eventTime={}, stateOperators=[]))])
    shown.say("a message")
    line = "archive: 2,000 events/s, batch 0.50 s"
    assert out.getvalue() == f"{line}\r\x1b[Ka message\n"


def test_without_the_observed_count_the_rows_of_the_source_count() -> None:
    assert module.records(batch(0, 0, observedMetrics={})) == 3
