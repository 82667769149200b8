"""State as bytes: refused by name where it is of another job or release, the same for the same."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from state.engine import codec
from state.engine.codec import StateFormatError
from state.engine.reach import Reach
from state.jobs import DECLARED
from tests.support.state_header import described
from tests.unit.state.contract.contract_traces import checked
from tests.unit.state.contract.jobs import Job, Sample
from tests.unit.state.trace import START_MS

M_PERTURB = -6
"""An option of malloc: the complement of what allocated memory is filled with."""
END = Sample((), until_ms=START_MS + 1000)


def some_state(job: Job) -> bytes:
    """Of a few records, some judged and some that wait."""
    states: list[bytes] = []
    job.play(
        [[job.event(0, 1), job.event(700, 2, "b")], [job.event(1200, 3, number=2)]], END, states
    )
    return states[-1]


def arrays(job: Job, data: bytes) -> dict[str, np.ndarray]:
    return dict(codec.decode(job.name, described(data)["version"], data))


@contextmanager
def memory_of(byte: int) -> Iterator[None]:
    """Let memory that is allocated hold this byte, where the C library can do so."""
    fill = getattr(ctypes.CDLL(None), "mallopt", lambda option, value: 0)
    fill(M_PERTURB, byte ^ 255)
    try:
        yield
    finally:
        fill(M_PERTURB, 0)


@pytest.mark.parametrize("apart", [1, -1])
def test_a_state_of_another_release_is_refused(job: Job, apart: int) -> None:
    data = some_state(job)
    reads = described(data)["version"]
    assert reads == DECLARED[job.name].state_version
    other = codec.encode(job.name, reads + apart, arrays(job, data))
    with pytest.raises(StateFormatError) as refused:
        job.core({}).step(other, [], Reach(0))
    assert str(refused.value) == (
        f"state of {job.name} has version {reads + apart}, this release reads {reads}"
    )


def test_a_state_of_another_job_is_refused(job: Job) -> None:
    data = some_state(job)
    other = codec.encode("someone", described(data)["version"], arrays(job, data))
    with pytest.raises(StateFormatError, match=f"^state of job someone, expected {job.name}$"):
        job.core({}).step(other, [], Reach(0))


def test_bytes_that_are_no_state_are_refused(job: Job) -> None:
    with pytest.raises(StateFormatError, match="not a state of Weir: magic"):
        job.core({}).step(b"NOPE" + some_state(job)[4:], [], Reach(0))


def test_the_same_records_give_the_same_state(job: Job, kind: str) -> None:
    """Byte for byte, whatever the memory held: of a few records and of a whole trace."""
    found = []
    for byte in (1, 254):
        with memory_of(byte):
            found.append(some_state(job))
    assert found[0] == found[1]
    assert described(found[0])["job"] == job.name

    @checked(24, kind)
    @given(job.traces[kind])
    def check(trace: Any) -> None:
        sample = job.sample(trace)
        batches = [sample.records[i : i + 15] for i in range(0, len(sample.records), 15)]
        both: tuple[list[bytes], list[bytes]] = ([], [])
        for byte, states in zip((1, 254), both, strict=True):
            with memory_of(byte):
                job.play(batches, sample, states)
        assert [a == b for a, b in zip(*both, strict=True)] == [True] * len(both[0])

    check()


def test_a_call_without_records_changes_nothing(job: Job) -> None:
    """Whatever Spark hands back: bytes or a bytearray."""
    data = job.core({}).step(some_state(job), [], Reach(0)).state
    for again in (data, bytearray(data)):
        step = job.core({}).step(again, [], Reach(0))
        assert (step.state == data, step.tables) == (True, {})
        assert job.knows(step.state, END) == job.knows(some_state(job), END)


def test_nothing_at_all(job: Job) -> None:
    step = job.core(job.before.params, job.before.policies).step(None, [], Reach(0))
    assert (step.tables, step.wake_at_ms) == ({}, None)
    step = job.core(job.before.params, job.before.policies).step(step.state, [], Reach(START_MS))
    assert (step.tables, step.wake_at_ms) == ({}, None)
    assert job.core({}).step(None, [job.blob([])], Reach(0)).tables == {}


def test_a_shard_asks_to_be_called_for_records_that_wait(job: Job) -> None:
    step = job.core({}).step(None, [job.blob([job.event(0, 1)])], Reach(0))
    assert step.wake_at_ms == START_MS
