"""Keys that move to other shards in the middle of a trace: rows are those of a run without it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.engine.codec import StateFormatError
from tests.support.effort import drawn
from tests.unit.state.contract.contract_traces import SEEDS
from tests.unit.state.contract.jobs import Job, assert_same, cut, with_walls
from tests.unit.state.contract.resharding import Shards
from tests.unit.state.trace import START_MS

COUNTS = st.sampled_from((1, 2, 3, 5, 8))


def test_rows_are_those_of_keys_that_never_moved(job: Job) -> None:
    @drawn(48)
    @given(
        st.one_of(*job.traces.values()), SEEDS, st.sampled_from((0, 490, 20_000)), COUNTS, COUNTS
    )
    def check(trace: Any, seed: int, jitter_ms: int, few: int, many: int) -> None:
        order = random.Random(seed)
        records = with_walls(job.read(trace.records))
        sample = job.sample(trace, max(r["ts_wall_ms"] for r in records) + 60_000)
        late = {id(r): r["ts_wall_ms"] + order.random() * jitter_ms for r in records}
        batches = cut(sorted(records, key=lambda r: late[id(r)]), order)
        whole, moved = Shards(job, sample, few), Shards(job, sample, few)
        turns = sorted(order.sample(range(len(batches) + 1), min(2, len(batches) + 1)))
        for i, batch in enumerate([*batches, []]):
            if i in turns:
                moved.move(many if i == turns[0] else few)
            whole.call(batch)
            moved.call(batch)
        assert_same(moved.end(sample.until_ms), whole.end(sample.until_ms))

    check()


def test_a_configuration_that_some_shards_have_not_seen_comes_to_all_keys(job: Job) -> None:
    """Joined shards of which only one has been called since the configuration changed."""
    names = [f"k{i}" for i in range(5)]
    whole, moved = Shards(job, job.before, 16), Shards(job, job.before, 16)
    for shards in (whole, moved):
        shards.call([job.event(i, 1 + i, key=name) for i, name in enumerate(names)])
        shards.core = job.core(job.after.params, job.after.policies)
        shards.call([job.event(2_000, 10, key=names[0], number=2)])
    moved.move(1)
    for shards in (whole, moved):
        for at_ms in range(3_000, 200_000, 20_000):
            number = 3 + at_ms // 20_000
            shards.call([job.event(at_ms, 20 + at_ms, key=name, number=number) for name in names])
    until_ms = START_MS + 400_000
    rows = whole.end(until_ms)
    assert_same(moved.end(until_ms), rows)
    assert sum(map(len, rows.values())) > len(names)


def test_one_key_in_two_shards_is_refused_by_name(job: Job) -> None:
    state = job.core({}).step(None, [job.blob([job.event(0, 1, key="twice")])], 0).state
    with pytest.raises(StateFormatError, match=rf"{job.name}: two shards have a state of .*twice"):
        job.core({}).joined([state, state])
