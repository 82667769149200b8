"""A record with a wrong clock costs its own key's clock nothing and others nothing (contract, 2).

Records go the way of a query: as JSON through the packer with the plan of their batch, to the core
with the stream's clock as the engine keeps it.
"""

from __future__ import annotations

import pytest

from app.sources.clocks import ClockLimits
from tests.unit.state.contract.ahead import (
    DAY,
    HOUR,
    MINUTE,
    Batches,
    honest,
    streamed,
    without_quarantine,
)
from tests.unit.state.contract.jobs import MS, Job, Rows, assert_same
from tests.unit.state.shipping import Row
from tests.unit.state.trace import START_MS, START_NS


def assert_undisturbed(job: Job, attacked: Batches, calm: Batches) -> list[tuple[str, int]]:
    """The rows are those of the calm batches and come as early; what was refused."""
    when: tuple[list[int], list[int]] = [], []
    found, expected = streamed(job, attacked, None, when[0]), streamed(job, calm, None, when[1])
    assert_same(without_quarantine(found), without_quarantine(expected))
    assert when[0] == when[1]
    assert refused(expected) == []
    return refused(found)


def refused(rows: Rows) -> list[tuple[str, int]]:
    return [(row["reason_code"], row["seq"]) for row in rows["quarantine"]]


def attacked(batches: Batches, record: Row, batch: int = 2, place: int = 9) -> Batches:
    """The batches with one more record among those of one."""
    found = [(plan_ms, list(records)) for plan_ms, records in batches]
    found[batch][1].insert(place, record)
    return found


@pytest.mark.parametrize("key", ["a", "z"])
@pytest.mark.parametrize("ahead_ms", [10_001, 55 * MINUTE, HOUR])
@pytest.mark.parametrize("place", [0, 9, 20])
def test_a_record_that_is_ahead_of_its_batch_stops_nobody(
    job: Job, key: str, ahead_ms: int, place: int
) -> None:
    calm = honest(job)
    one = job.event(30_000 + ahead_ms, 999, key=key, number=900)
    # one that the stream reaches is judged then, as if it had come in its time
    calm_too = attacked(calm, one, batch=4) if ahead_ms < MINUTE else calm
    assert assert_undisturbed(job, attacked(calm, one, place=place), calm_too) == []


@pytest.mark.parametrize("key", ["a", "z"])
def test_a_record_too_far_ahead_is_refused_by_its_job_and_stops_nobody(job: Job, key: str) -> None:
    calm = honest(job)
    one = job.event(30_000 + HOUR + 1, 999, key=key, number=900)
    found = streamed(job, attacked(calm, one))
    (row,) = found["quarantine"]
    assert (row["reason_code"], row["job"], row["seq"], row["broker"], row["source_offset"]) == (
        "CLOCK_OUT_OF_RANGE",
        job.name,
        999,
        one["broker"],
        49,
    )
    assert row["ingest_ms"] == START_MS + 30_000
    assert row["detail"] == (
        f"ts_wall_ms is {HOUR + 1} ms after the plan of its batch; max_future_ms is {HOUR}"
    )
    assert_same(without_quarantine(found), without_quarantine(streamed(job, calm)))


@pytest.mark.parametrize("ahead_ms", [10_001, HOUR + 1, 80 * 365 * DAY])
def test_in_a_catch_up_a_record_that_is_ahead_stops_nobody(job: Job, ahead_ms: int) -> None:
    calm = [(DAY, records) for _, records in honest(job)]
    one = job.event(DAY + ahead_ms, 999, key="z", number=900)
    found = assert_undisturbed(job, attacked(calm, one), calm)
    assert [code for code, _ in found] == ["CLOCK_OUT_OF_RANGE"] * (ahead_ms > HOUR)


@pytest.mark.parametrize("key", ["a", "z"])
@pytest.mark.parametrize("place", [1, 9, 19])
def test_in_a_catch_up_a_record_far_from_its_neighbours_stops_nobody(
    job: Job, key: str, place: int
) -> None:
    calm = [(DAY, records) for _, records in honest(job)]
    one = job.event(20 * HOUR, 999, key=key, number=900)
    assert assert_undisturbed(job, attacked(calm, one, place=place), calm) == []


@pytest.mark.parametrize("plan_ms", [None, DAY], ids=["live", "catch-up"])
def test_records_of_long_ago_keep_nobody_waiting(job: Job, plan_ms: int | None) -> None:
    calm: Batches = [(plan_ms or planned, records) for planned, records in honest(job)]
    # three in every batch but the first, which would be the first of their key
    mixed = [
        (planned, [*records[:1], *ago, *records[1:9], *ago[:1], *records[9:]])
        for (planned, records), ago in zip(
            calm,
            [
                [],
                *[[job.event(-20 * HOUR + i, 900 + i, key="a", number=800 + i) for i in range(2)]]
                * 5,
            ],
            strict=True,
        )
    ]
    assert {code for code, _ in assert_undisturbed(job, mixed, calm)} == {"TOO_LATE"}


def test_a_pause_of_the_fleet_is_no_jump(job: Job) -> None:
    before = [(DAY, records) for _, records in honest(job)]
    after = [(DAY, [job.event(10 * MINUTE + i, 200 + i, key="a", number=70 + i)]) for i in range(3)]
    joined = [(DAY, [*before[-1][1], *after[0][1]]), *after[1:]]
    limits = ClockLimits(max_jump_ms=MINUTE)
    assert_same(streamed(job, [*before[:-1], *joined], limits), streamed(job, [*before, *after]))
    assert refused(streamed(job, [*before[:-1], *joined], limits)) == []


@pytest.mark.parametrize("mono", [2**63 - 1, 0, START_NS + 2 * HOUR * MS])
@pytest.mark.parametrize("plan_ms", [None, DAY], ids=["live", "catch-up"])
def test_a_wrong_monotonic_time_stops_nobody(job: Job, mono: int, plan_ms: int | None) -> None:
    calm: Batches = [(plan_ms or planned, records) for planned, records in honest(job)]
    one = {**job.event(25_000, 999, key="a", number=900), "ts_mono_ns": mono}
    found = streamed(job, attacked(calm, one, place=10))
    if not job.decides_by_mono:  # that clock is nothing to it
        assert refused(found) == []
        return
    (row,) = found["quarantine"]
    assert row["seq"] == 999
    if mono == 0:  # as after a start of the broker, which never comes
        assert row["reason_code"] == "TOO_LATE"
    else:
        assert (row["reason_code"], row["detail"]) == (
            "CLOCK_OUT_OF_RANGE",
            "ts_mono_ns and ts_wall_ms are further from where they stood than"
            f" max_future_ms: {HOUR}",
        )
    assert_same(without_quarantine(found), without_quarantine(streamed(job, calm)))


def test_a_machine_that_slept_goes_on(job: Job) -> None:
    if not job.decides_by_mono:
        return  # it knows no other clock than the one that went on
    calm, slept_ms = honest(job), 5 * HOUR
    late = [
        (plan_ms + slept_ms, [{**r, "ts_wall_ms": r["ts_wall_ms"] + slept_ms} for r in records])
        for plan_ms, records in calm[3:]
    ]
    assert refused(streamed(job, [*calm[:3], *late])) == []
