"""Rows do not depend on the number of shards that the keys are in."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.effort import drawn
from tests.unit.state.contract.contract_traces import SEEDS
from tests.unit.state.contract.jobs import Job, assert_same, cut, with_walls
from tests.unit.state.contract.shards import Shards

COUNTS = st.sampled_from((2, 3, 5, 8))


def test_rows_are_those_of_one_shard(job: Job) -> None:
    @drawn(48)
    @given(st.one_of(*job.traces.values()), SEEDS, st.sampled_from((0, 490, 20_000)), COUNTS)
    def check(trace: Any, seed: int, jitter_ms: int, count: int) -> None:
        order = random.Random(seed)
        records = with_walls(job.read(trace.records))
        sample = job.sample(trace, max(r["ts_wall_ms"] for r in records) + 60_000)
        late = {id(r): r["ts_wall_ms"] + order.random() * jitter_ms for r in records}
        one, many = Shards(job, sample, 1), Shards(job, sample, count)
        for batch in cut(sorted(records, key=lambda r: late[id(r)]), order):
            one.call(batch)
            many.call(batch)
        assert_same(many.end(sample.until_ms), one.end(sample.until_ms))

    check()
