"""A wall clock that is set back is noticed once, by how much it was."""

from __future__ import annotations

from app.run.clock_watch import ClockWatch


def test_steps_back_are_noticed_and_steps_forward_are_not() -> None:
    clocks = {"wall": 1_000.0, "steady": 0.0}
    watch = ClockWatch(lambda: clocks["wall"], lambda: clocks["steady"])
    steps = [0.0, -2.0, -2.5, -0.5, 0.0, 7_200.0, -3_600.0, 0.0]
    found = []
    for step in steps:
        clocks["steady"] += 1
        clocks["wall"] += 1 + step
        found.append(watch.step_back_s())
    assert found == [0.0, 0.0, 0.0, 5.0, 0.0, 0.0, 3_600.0, 0.0]
