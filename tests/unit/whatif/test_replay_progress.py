"""What a replay says while it works, by a clock of the test."""

from __future__ import annotations

import pytest

from app.whatif.replay.replay_progress import ReplayProgress


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_each_stage_names_its_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    progress = ReplayProgress(8_000_000, 20, clock_s=clock)
    for seconds, records in ((6, 1_000_000), (12, 1_000_000), (30, 6_000_000)):
        clock.now_s = 100.0 + seconds
        progress.read(records, 80 * records)
    # 640 MB are packed: a large part first, then small ones
    for seconds, parts, megabytes in ((50, 1, 160), (51, 3, 40), (80, 8, 300), (90, 8, 140)):
        clock.now_s = 100.0 + seconds
        progress.judged(parts, megabytes * 1_000_000)
    progress.end(8_000_000, 1_234)
    assert capsys.readouterr().out.splitlines() == [
        "read 1,000,000 of 8,000,000 records, 166,667 a second, 42 s left, then 20 parts to judge",
        "read 2,000,000 of 8,000,000 records, 166,667 a second, 36 s left, then 20 parts to judge",
        "read 8,000,000 of 8,000,000 records, 266,667 a second, 0 s left, then 20 parts to judge",
        "judged 1 of 20 parts, 60 s left",
        "judged 12 of 20 parts, 14 s left",
        "judged 20 of 20 parts, 0 s left",
        "8,000,000 records in 90.0 s (88,889 a second), 1,234 rows written",
    ]


def test_what_is_filtered_away_has_no_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    """Parts without a record have no bytes, by which their time could be told."""
    clock = Clock()
    progress = ReplayProgress(1_000, 4, clock_s=clock)
    progress.read(1_000, 0)
    clock.now_s += 10
    progress.judged(2, 0)
    assert capsys.readouterr().out == "judged 2 of 4 parts\n"
