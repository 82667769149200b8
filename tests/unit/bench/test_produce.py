"""The demo's fleet as the freshness benchmark sends it: each record at its own time."""

from __future__ import annotations

import json

import pytest

from benchmarks.produce import WALL, demo, moved_by, planned

SECONDS, RATE, MOVED_MS = 25, 300, 10**10


@pytest.fixture(scope="module")
def plan():
    trace = demo(RATE)
    return trace, *planned(trace, SECONDS)


def test_records_are_sent_at_their_time_and_late_ones_with_newer_ones(plan):
    trace, lines, brokers, due = plan
    walls = [int(found[1]) if (found := WALL.search(line)) else None for line in lines]
    assert len(lines) == len(brokers) == len(due)
    assert (due[1:] >= due[:-1]).all()
    punctual = [w == d for w, d in zip(walls, due.tolist(), strict=True) if w is not None]
    assert sum(punctual) > 0.9 * len(punctual)
    assert trace.scenario.start_ms <= due[0] and due[-1] <= trace.scenario.start_ms + 30_000


def test_wall_times_move_and_nothing_else_does(plan):
    _, lines, _, _ = plan
    moved = 0
    for line in lines[:2_000]:
        try:
            before = json.loads(line)
        except ValueError:
            continue
        after = json.loads(moved_by(line, MOVED_MS))
        for name, value in before.items():
            if name in ("ts_wall_ms", "publish_time_ms", "broker_time_ms") and value:
                assert after[name] == value + MOVED_MS or not 10**12 <= value < 10**13
                moved += 1
            elif name != "ledger_close_ms":
                assert after[name] == value
    assert moved > 2_000
