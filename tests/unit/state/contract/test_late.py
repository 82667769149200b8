"""What comes behind the clock of its key is refused by name, and changes nothing (contract, 2)."""

from __future__ import annotations

import pytest

from state.engine.reach import Reach
from tests.unit.state.contract.jobs import Job, Sample, assert_same
from tests.unit.state.shipping import Row
from tests.unit.state.trace import START_MS

LATENESS_MS, IDLE_ADVANCE_MS = 500, 10_000
MONTH_MS = 30 * 24 * 3_600_000
END = Sample((), until_ms=START_MS + 200_000)


def test_a_record_before_the_clock_is_too_late_and_one_at_the_clock_is_not(job: Job) -> None:
    first, at_clock = job.event(10_000, 1), job.event(10_000 - LATENESS_MS, 2, number=2)
    late = job.event(10_000 - LATENESS_MS - 1, 3, number=3, source_offset=7)
    rows = job.play([[first], [at_clock, late]], END)
    assert rows.pop("quarantine") == [
        {
            "reason_code": "TOO_LATE",
            "detail": "1 ms before the clock of its key",
            "job": job.name,
            "source_feed": "contract",
            "cluster": "c",
            "broker": late["broker"],
            "seq": 3,
            "ts_wall_ms": START_MS + 9_499,
            "source_partition": "0",
            "source_offset": 7,
            "raw": None,
            "ingest_ms": START_MS,
        }
    ]
    assert_same(job.play([[at_clock, first]], END), {**rows, "quarantine": []})


def test_records_at_the_clock_wait_for_those_of_their_time(job: Job) -> None:
    first, second = job.event(9_500, 2, number=2), job.event(9_500, 3, number=3)
    ahead = job.event(10_000, 1)
    together = job.play([[first, second, ahead]], END)
    assert_same(job.play([[ahead], [second], [first]], END), together)


def test_within_one_batch_nothing_is_too_late(job: Job) -> None:
    records = [job.event(10_000, 1), job.event(0, 2, number=2)]
    rows = job.play([records], END)
    assert rows["quarantine"] == []
    assert_same(rows, job.play([records[::-1]], END))


def test_every_key_has_a_clock_of_its_own(job: Job) -> None:
    ahead, behind = job.event(9_999, 1, key="a"), job.event(0, 2, key="b")
    assert_same(job.play([[ahead], [behind]], END), job.play([[behind, ahead]], END))


def silent(job: Job, at_ms: int) -> list[list[Row]]:
    """A key that is silent for 30 s while another goes on, and then has a record of that time."""
    return [
        [job.event(0, 1, key="a")],
        [job.event(30_000, 2, key="b")],
        [job.event(at_ms, 3, key="a", number=2)],
    ]


def test_the_clock_of_the_stream_moves_a_silent_key(job: Job) -> None:
    (row,) = job.play(silent(job, 19_999), END)["quarantine"]
    assert (row["reason_code"], row["seq"], row["detail"]) == (
        "TOO_LATE",
        3,
        "idle_advance_ms of 10001 would have kept it",
    )
    assert job.play(silent(job, 20_000), END)["quarantine"] == []
    longer = Sample((), {"idle_advance_ms": 10_001}, until_ms=END.until_ms)
    assert job.play(silent(job, 19_999), longer)["quarantine"] == []


def test_the_idle_advance_that_would_have_kept_a_record_is_returned(job: Job) -> None:
    core, state, needed = job.core({}), None, []
    for batch, stream_ms in zip(silent(job, 15_000), (0, 0, 20_000), strict=True):
        step = core.step(state, [job.blob(batch)], Reach(START_MS + stream_ms if stream_ms else 0))
        state = step.state
        needed.append(step.needed_idle_advance_ms)
    assert needed == [None, None, 15_000]


@pytest.mark.parametrize("far_ms", [0, 15_000 - MONTH_MS])
def test_a_record_of_long_ago_hides_no_other(job: Job, far_ms: int) -> None:
    core, state, needed = job.core({}), None, []
    first, second, third = silent(job, 15_000)
    third += [
        job.event(19_000, 5, key="c"),
        {**job.event(0, 4, key="c", number=2), "ts_wall_ms": START_MS + far_ms},
    ]
    for batch, stream_ms in zip((first, second, third), (0, 0, 20_000), strict=True):
        step = core.step(state, [job.blob(batch)], Reach(START_MS + stream_ms if stream_ms else 0))
        state = step.state
        needed.append(step.needed_idle_advance_ms)
    assert needed[2] == (15_000 if far_ms else 30_000)


@pytest.mark.parametrize("lateness_ms", [0, 3_000])
def test_the_lateness_is_that_of_the_configuration(job: Job, lateness_ms: int) -> None:
    by = Sample((), {"allowed_lateness_ms": lateness_ms}, until_ms=END.until_ms)
    batches = [
        [job.event(10_000, 1)],
        [
            job.event(10_000 - lateness_ms - 1, 2, number=2),
            job.event(10_000 - lateness_ms, 3, number=3),
        ],
    ]
    assert [r["seq"] for r in job.play(batches, by)["quarantine"]] == [2]
