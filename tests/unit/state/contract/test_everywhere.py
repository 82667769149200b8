"""Records that every shard is given are reported by one copy alone, that of their home."""

from __future__ import annotations

import pytest

from state.engine.reach import Reach
from tests.unit.state.contract.jobs import Job
from tests.unit.state.shipping import Row
from tests.unit.state.trace import START_MS


def refused(job: Job, batches: list[list[Row]], home: int) -> list[tuple[str, int]]:
    """Reason and seq of what a shard refuses of copies of records."""
    core, state, found = job.core({}), None, []
    for batch in batches:
        step = core.step(state, [job.blob(batch, home)] if batch else [], Reach(0))
        state = step.state
        if "quarantine" in step.tables:
            found += step.tables["quarantine"].to_pylist()
    return [(r["reason_code"], r["seq"]) for r in found]


@pytest.mark.parametrize("home", [1, 0])
def test_a_repeated_record_is_reported_at_its_home(job: Job, home: int) -> None:
    told = job.shared(0, 1)
    again = [("DUPLICATE_RECORD", 1)] * home
    assert refused(job, [[told, told]], home) == again
    assert refused(job, [[told], [told, job.shared(1, 2)]], home) == again


@pytest.mark.parametrize("home", [1, 0])
def test_one_that_comes_behind_the_clocks_of_keys_is_not_late(job: Job, home: int) -> None:
    """It holds for keys that are still to come, too: it is not late for them."""
    core = job.core({})
    state = core.step(None, [job.blob([job.event(60_000, 1, key="b")])], Reach(0)).state
    step = core.step(state, [job.blob([job.shared(0, 2)], home)], Reach(0))
    assert "quarantine" not in step.tables


def test_a_copy_holds_as_the_one_at_home_does(job: Job) -> None:
    records = [job.event(1000 + i, 1 + i, number=1 + i) for i in range(5)]
    found = []
    for told, home in (([job.shared(0, 9)], 1), ([job.shared(0, 9)], 0), ([], 1)):
        core = job.core({})
        state = core.step(None, [job.blob(told, home)] if told else [], Reach(0)).state
        state = core.step(state, [job.blob(records)], Reach(0)).state
        found.append(core.step(state, [], Reach(START_MS + 200_000)).tables)
    at_home, copy, without = [{n: t.to_pylist() for n, t in tables.items()} for tables in found]
    assert copy == at_home
    assert copy != without
