"""Whole random traces: as the reference has them, whatever the cuts, the arrival and the shards."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.engine.names import Names
from tests.unit.state.contract.contract_traces import SEEDS, checked
from tests.unit.state.contract.jobs import Job, Rows, assert_same, cut, with_walls

LATENESS_MS = 490
"""Less than allowed_lateness_ms, so that nothing is too late."""


def test_core_and_reference_agree(job: Job, kind: str) -> None:
    """Written apart from one specification, they give the same rows."""

    @checked(150, kind)
    @given(job.traces[kind])
    def check(trace: Any) -> None:
        sample = job.sample(trace)
        assert_same(job.play([sample.records], sample), job.in_order(job.judge(sample)))

    check()


def test_any_cut_and_arrival_gives_the_same_rows_and_state(job: Job, kind: str) -> None:
    """In batches of any length, each record up to the lateness behind its time.

    The start of a broker comes on time where it begins a clock of its own: until it is known, the
    records of its run cannot be told from those of the run before (test_lateness.py has those
    that can).
    """

    @checked(150, kind)
    @given(
        job.traces[kind],
        SEEDS,
        st.sampled_from((0, LATENESS_MS)),
        st.sampled_from((1, 600, 3_000, 60_000, 200_000)),
    )
    def check(trace: Any, seed: int, jitter_ms: int, rest_ms: int) -> None:
        order = random.Random(seed)
        records = with_walls(job.read(trace.records))
        sample = job.sample(trace, max(r["ts_wall_ms"] for r in records) + rest_ms)

        def arrival(r: Any) -> float:
            punctual = job.decides_by_mono and r["event_type"] == "broker_started"
            late: float = r["ts_wall_ms"] + order.random() * jitter_ms * (not punctual)
            return late

        whole_states: list[bytes] = []
        states: list[bytes] = []
        whole = job.play([records], sample, whole_states)
        split = job.play(cut(sorted(records, key=arrival), order), sample, states)
        assert split["quarantine"] == []
        assert_same(split, whole)
        assert job.knows(states[-1], sample) == job.knows(whole_states[-1], sample)

    check()


def test_keys_in_other_shards_change_nothing(job: Job, kind: str) -> None:
    """Every key in a shard of its own; what holds for many goes to all of them."""

    @checked(50, kind)
    @given(job.traces[kind])
    def check(trace: Any) -> None:
        sample = job.sample(trace)
        records = list(sample.records)
        keys = sorted({key for r in records if (key := job.key_of(r)) is not None}, key=str)
        found: Rows = {}
        for key in keys:
            mine = [r for r in records if job.key_of(r) in (key, None)]
            for table, rows in job.play([mine], sample).items():
                found.setdefault(table, []).extend(rows)
        assert_same(job.in_order(found), job.play([records], sample))

    check()


def test_names_of_one_hash_stay_apart(job: Job, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are compared byte by byte; here every one has the same hash."""

    @checked(50, kind)
    @given(job.traces[kind])
    def check(trace: Any) -> None:
        sample = job.sample(trace)
        records = list(sample.records)[:60]
        monkeypatch.undo()
        expected = job.play([records], sample)
        monkeypatch.setattr(Names.__init__, "__defaults__", (None, None, 0))
        assert_same(job.play([records[:10], records[10:]], sample), expected)

    check()
