"""State as bytes: refused by name where it is of another job or release, the same for the same."""

from __future__ import annotations

import numpy as np
import pytest

from state.engine import codec
from state.engine.codec import StateFormatError
from tests.state.contract.jobs import Job, Sample
from tests.state.trace import START_MS

END = Sample((), until_ms=START_MS + 1000)


def some_state(job: Job) -> bytes:
    """Of a few records, some judged and some that wait."""
    states: list[bytes] = []
    job.play([[job.event(0, 1), job.event(700, 2, "b")], [job.event(1200, 3, number=2)]], END,
             states)
    return states[-1]


def arrays(job: Job, data: bytes) -> dict[str, np.ndarray]:
    return dict(codec.decode(job.name, codec.describe(data)["version"], data))


def values(job: Job, data: bytes) -> dict[str, str]:
    """What the arrays hold; the padding between the fields of a row may be anything."""
    return {name: repr(array.tolist()) for name, array in arrays(job, data).items()}


@pytest.mark.parametrize("apart", [1, -1])
def test_a_state_of_another_release_is_refused(job: Job, apart: int) -> None:
    data = some_state(job)
    reads = codec.describe(data)["version"]
    other = codec.encode(job.name, reads + apart, arrays(job, data))
    with pytest.raises(StateFormatError) as refused:
        job.core({}).step(other, [], 0)
    assert str(refused.value) == (
        f"state of {job.name} has version {reads + apart}, this release reads {reads}")


def test_a_state_of_another_job_is_refused(job: Job) -> None:
    data = some_state(job)
    other = codec.encode("someone", codec.describe(data)["version"], arrays(job, data))
    with pytest.raises(StateFormatError, match=f"^state of job someone, expected {job.name}$"):
        job.core({}).step(other, [], 0)


def test_bytes_that_are_no_state_are_refused(job: Job) -> None:
    with pytest.raises(StateFormatError, match="not a state of Weir: magic"):
        job.core({}).step(b"NOPE" + some_state(job)[4:], [], 0)


def test_the_same_records_give_the_same_state(job: Job) -> None:
    data = some_state(job)
    assert values(job, data) == values(job, some_state(job))
    assert codec.describe(data)["job"] == job.name


def test_a_call_without_records_changes_nothing(job: Job) -> None:
    """Whatever Spark hands back: bytes or a bytearray."""
    data = job.core({}).step(some_state(job), [], 0).state
    for again in (data, bytearray(data)):
        step = job.core({}).step(again, [], 0)
        assert (values(job, step.state), step.tables) == (values(job, data), {})
        assert job.knows(step.state, END) == job.knows(some_state(job), END)


def test_nothing_at_all(job: Job) -> None:
    step = job.core(job.before.params, job.before.policies).step(None, [], 0)
    assert (step.tables, step.wake_at_ms) == ({}, None)
    step = job.core(job.before.params, job.before.policies).step(step.state, [], START_MS)
    assert (step.tables, step.wake_at_ms) == ({}, None)
    assert job.core({}).step(None, [job.blob([])], 0).tables == {}


def test_a_shard_asks_to_be_called_for_records_that_wait(job: Job) -> None:
    step = job.core({}).step(None, [job.blob([job.event(0, 1)])], 0)
    assert step.wake_at_ms == START_MS
