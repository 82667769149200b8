"""What has ended and is idle leaves the state: it grows with what lives, not with what was."""

from __future__ import annotations

from tests.support.state_header import described
from tests.unit.state.contract.jobs import Job, Sample
from tests.unit.state.trace import START_MS

SOON = Sample((), {"idle_state_ms": 20_000, "stats_window_ms": 10_000}, until_ms=START_MS + 10**7)


def lengths(state: bytes) -> dict[str, int]:
    """How many elements each array of a state has."""
    return {a["name"]: a["length"] for a in described(state)["arrays"]}


def test_three_hundred_leave_no_more_than_three(job: Job) -> None:
    left, most = [], []
    for count in (3, 300):
        states: list[bytes] = []
        assert job.play(job.passing(count), SOON, states)["quarantine"] == []
        left.append(lengths(states[-1]))
        most.append(max(map(len, states)))
    assert left[0] == left[1]
    assert most[1] > 1.5 * most[0]
