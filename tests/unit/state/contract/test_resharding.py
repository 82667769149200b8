"""Keys that move to other shards in the middle of a trace: rows are those of a run without it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.engine.codec import StateFormatError
from state.engine.moving import heirs
from tests.support.effort import drawn
from tests.unit.state.contract.jobs import Job, Rows, Sample, assert_same, cut, with_walls
from tests.unit.state.contract.test_traces import SEEDS
from tests.unit.state.shipping import Row, params_of
from tests.unit.state.trace import START_MS
from udfs.hashing import name_hash

COUNTS = st.sampled_from((1, 2, 3, 5, 8))


class Shards:
    """The states of a job in some shards, called as a query calls them: with records, or because
    a timer is due."""

    def __init__(self, job: Job, by: Sample, count: int) -> None:
        self.job, self.count, self.rows = job, count, Rows()
        self.core = job.core(by.params, by.policies)
        self.advance_ms = params_of(job.name, **by.params)["idle_advance_ms"]
        self.states: dict[int, bytes] = {}
        self.due: dict[int, int | None] = {}
        self.latest = self.stream = 0

    def home(self, key: tuple[str, ...]) -> int:
        return (name_hash(*key) % 2**64) % self.count

    def call(self, batch: list[Row]) -> None:
        """A micro-batch; the clock is moved at its end."""
        copies: dict[int, dict[bool, list[Row]]] = {}
        for record in batch:
            key = self.job.key_of(record)
            home = self.home(key or (record["cluster"], record["broker"]))
            for shard in range(self.count) if key is None else (home,):
                copies.setdefault(shard, {}).setdefault(shard == home, []).append(record)
        blobs = {
            shard: [self.job.blob(records, int(home)) for home, records in mine.items()]
            for shard, mine in copies.items()
        }
        timers = [s for s, due in self.due.items() if due is not None and due < self.stream]
        for shard in sorted({*blobs, *timers}):
            step = self.core.step(self.states.get(shard), blobs.get(shard, []), self.stream)
            self.states[shard] = step.state
            wake = step.wake_at_ms
            self.due[shard] = None if wake is None else max(wake, self.stream + 1)
            for name, table in step.tables.items():
                self.rows.setdefault(name, []).extend(self.job.plain(table))
        walls = [r["ts_wall_ms"] for r in batch if r["ts_wall_ms"] is not None]
        self.latest = max([self.latest, *walls])
        self.stream = max(self.stream, self.latest - self.advance_ms)

    def move(self, count: int) -> None:
        """Every key to the shard that it has among so many."""
        pieces: dict[int, list[tuple[bytes, int | None]]] = {}
        for shard, state in self.states.items():
            found = self.core.pieces(state, count, heirs(shard, self.count, count))
            for to, piece in found.items():
                pieces.setdefault(to, []).append((piece, self.due[shard]))
        self.states = {to: self.core.joined([p for p, _ in every]) for to, every in pieces.items()}
        self.due = {
            to: min((due for _, due in every if due is not None), default=None)
            for to, every in pieces.items()
        }
        self.count = count

    def end(self, until_ms: int | None) -> Rows:
        """All rows, once the clock is at a time."""
        self.call([])
        if until_ms is not None:
            self.stream = until_ms
            self.call([])
        return self.job.in_order(self.rows)


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
