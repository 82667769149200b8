"""No record moves the clock of a key that is not its own (contract, 2).

Records go the way of a query: as JSON through the packer with the plan of their batch, to the core
with the plan that the batches before it have reached.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.effort import drawn
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

FOREIGN = 900
"""Numbers from here on are of records of others."""


def assert_undisturbed(
    job: Job, attacked: Batches, calm: Batches, waiting: bool = False
) -> list[tuple[str, int]]:
    """The rows are those of the calm batches and come as early; what was refused."""
    when: tuple[list[int], list[int]] = [], []
    found = streamed(job, attacked, when[0], waiting)
    expected = streamed(job, calm, when[1], waiting)
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


def of_others(job: Job, rows: Rows, calm: Rows) -> Rows:
    """The rows of the keys that calm batches have, and of their records."""
    known = {tuple(row.get(c) for c in job.key) for found in calm.values() for row in found}
    return {
        name: [
            row
            for row in found
            if (
                row["seq"] < FOREIGN
                if name == "quarantine"
                else tuple(row.get(c) for c in job.key) in known
            )
        ]
        for name, found in rows.items()
    }


WALLS = st.sampled_from(
    [-START_MS, -20 * HOUR, -MINUTE, 0, 9_999, 10_001, 50 * MINUTE, 5 * HOUR, 30 * DAY, 2**40]
)
MONOS = st.sampled_from([None, None, -(2**63), -1, 0, 1, 55 * MINUTE * MS, 2**62, 2**63 - 1])


@pytest.mark.parametrize("mode", ["live", "catch-up", "bounded"])
@given(data=st.data())
@drawn(60)
def test_records_of_others_change_no_row(job: Job, mode: str, data: Any) -> None:
    calm = honest(job) if mode == "live" else [(DAY, records) for _, records in honest(job)]
    found = [(plan_ms, list(records)) for plan_ms, records in calm]
    for number in range(data.draw(st.integers(1, 4), "places")):
        batch = data.draw(st.integers(0, len(found) - 1), "batch")
        place = data.draw(st.sampled_from([0, 7, len(found[batch][1])]), "place")
        wall, mono = data.draw(WALLS, "wall"), data.draw(MONOS, "mono")
        for one in range(data.draw(st.sampled_from([1, 2, 17]), "burst")):
            seq = FOREIGN + 20 * number + one
            record = job.event(30_000 + wall + one, seq, key=f"z{number % 2}", number=seq)
            if mono is not None:
                record["ts_mono_ns"] = min(mono + one, 2**63 - 1)
            found[batch][1].insert(place + one, record)
    if data.draw(st.booleans(), "in batches of their own"):
        found = [
            (plan_ms, part)
            for plan_ms, records in found
            for part in (
                [r for r in records if r["seq"] >= FOREIGN],
                [r for r in records if r["seq"] < FOREIGN],
            )
        ]
    waiting, drained = mode != "live", mode == "bounded"
    expected = streamed(job, calm, waiting=waiting, drained=drained)
    rows = streamed(job, found, waiting=waiting, drained=drained)
    assert_same(of_others(job, rows, expected), expected)


@pytest.mark.parametrize("waiting", [False, True], ids=["live", "catch-up"])
@pytest.mark.parametrize("apart_ms", [5 * MINUTE, 40 * MINUTE, -40 * MINUTE])
def test_keys_whose_clocks_differ_by_minutes_are_all_on_time(
    job: Job, apart_ms: int, waiting: bool
) -> None:
    if waiting:
        honest_ones: Batches = [(DAY, records) for _, records in honest(job)]
    else:
        honest_ones = honest(job)
    more = {"z": apart_ms, "y": 2 * apart_ms // 3}
    both = [
        (
            plan_ms,
            [
                *records,
                *(
                    job.event(
                        10_000 * n + 1000 * i + by_ms,
                        FOREIGN + 10 * n + i,
                        key=key,
                        number=10 * n + i + 1,
                    )
                    for key, by_ms in more.items()
                    for i in range(10)
                ),
            ],
        )
        for n, (plan_ms, records) in enumerate(honest_ones)
    ]
    assert refused(streamed(job, both, waiting=waiting)) == []


def test_a_silent_key_runs_on_at_its_own_distance_from_the_plan(job: Job) -> None:
    behind_ms, calm = 5 * MINUTE, honest(job)
    own = [job.event(i * 1000, FOREIGN + i, key="z", number=i + 1) for i in range(10)]
    later = [(plan_ms + behind_ms, records) for plan_ms, records in calm]
    when: list[int] = []
    # its records are five minutes older than their plan, and it is silent after the first batch
    found = [(behind_ms + 10_000, [*own, *later[0][1]])]
    others = [(plan_ms, []) for plan_ms in (behind_ms + 15_000, behind_ms + 40_000)]
    rows = streamed(job, [*found, *others], when, drained=False)
    assert refused(rows) == []
    late = job.event(8_000, FOREIGN + 50, key="z", number=70)
    fresh = job.event(60_000, FOREIGN + 51, key="z", number=71)
    last = (behind_ms + 60_000, [late, fresh])
    assert refused(streamed(job, [*found, *others, last])) == [("TOO_LATE", FOREIGN + 50)]


def test_nothing_is_silent_while_records_wait_in_the_source(job: Job) -> None:
    own = [job.event(i * 1000, FOREIGN + i, key="z", number=i + 1) for i in range(10)]
    rest = [job.event(10_000 + i, FOREIGN + 20 + i, key="z", number=i + 20) for i in range(5)]
    calm = [(DAY + n * MINUTE, records) for n, (_, records) in enumerate(honest(job))]
    batches = [(DAY, own), *calm, (DAY + HOUR, rest)]
    assert refused(streamed(job, batches, waiting=True)) == []


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
    found = assert_undisturbed(job, attacked(calm, one), calm, waiting=True)
    assert [code for code, _ in found] == ["CLOCK_OUT_OF_RANGE"] * (ahead_ms > HOUR)


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
    found = assert_undisturbed(job, mixed, calm, waiting=plan_ms is not None)
    assert {code for code, _ in found} == {"TOO_LATE"}


@pytest.mark.parametrize("mono", [2**63 - 1, 0, START_NS + 2 * HOUR * MS])
@pytest.mark.parametrize("plan_ms", [None, DAY], ids=["live", "catch-up"])
def test_a_wrong_monotonic_time_stops_nobody(job: Job, mono: int, plan_ms: int | None) -> None:
    calm: Batches = [(plan_ms or planned, records) for planned, records in honest(job)]
    one = {**job.event(25_000, 999, key="a", number=900), "ts_mono_ns": mono}
    found = streamed(job, attacked(calm, one, place=10), waiting=plan_ms is not None)
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
            "ts_mono_ns and ts_wall_ms are further from where those of its broker stand than"
            " clock_skew_ms: 10000",
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


def assert_clock(job: Job, batches: Batches, wrong: set[int], waiting: bool) -> None:
    """Of the records only the wrong ones (by seq) are refused."""
    found = refused(streamed(job, batches, waiting=waiting))
    assert [(code, seq) for code, seq in found if seq not in wrong] == []


@pytest.mark.parametrize("waiting", [False, True], ids=["live", "catch-up"])
@pytest.mark.parametrize("mono", [2**63 - 1, 0, START_NS + 55 * MINUTE * MS])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("alone", [False, True], ids=["first", "first batch"])
def test_the_first_records_of_a_broker_do_not_make_its_clock(
    job: Job, mono: int, count: int, alone: bool, waiting: bool
) -> None:
    if not job.decides_by_mono:
        return  # that clock is nothing to it
    calm = [(DAY if waiting else plan_ms, records) for plan_ms, records in honest(job)]
    wrong = [
        {**job.event(i, FOREIGN + i, key="a", number=900 + i), "ts_mono_ns": mono}
        for i in range(count)
    ]
    if alone:
        batches: Batches = [(DAY if waiting else 1000, wrong), *calm]
    else:
        batches = [(calm[0][0], [*wrong, *calm[0][1]]), *calm[1:]]
    assert_clock(job, batches, {FOREIGN + i for i in range(count)}, waiting)


@pytest.mark.parametrize("waiting", [False, True], ids=["live", "catch-up"])
@pytest.mark.parametrize("count", [1, 9])
@pytest.mark.parametrize("by_ms", [11_000, 55 * MINUTE])
@pytest.mark.parametrize("column", ["ts_mono_ns", "ts_wall_ms"])
@pytest.mark.parametrize("place", [0, 20])
def test_wrong_records_of_a_broker_cost_themselves(
    job: Job, waiting: bool, count: int, by_ms: int, column: str, place: int
) -> None:
    if not job.decides_by_mono:
        return  # a topic's own record may move its clock
    calm = [(DAY if waiting else plan_ms, list(records)) for plan_ms, records in honest(job)]
    scale = MS if column == "ts_mono_ns" else 1
    for i in range(count):
        one = job.event(25_000 + i, FOREIGN + i, key="a", number=900 + i)
        calm[2][1].insert(place, {**one, column: one[column] + by_ms * scale})
    assert_clock(job, calm, {FOREIGN + i for i in range(count)}, waiting)


@pytest.mark.parametrize("by_ms", [-HOUR, -11_000, 11_000, HOUR])
@pytest.mark.parametrize("waiting", [False, True], ids=["live", "catch-up"])
def test_a_wall_clock_that_is_set_costs_nothing(job: Job, by_ms: int, waiting: bool) -> None:
    if not job.decides_by_mono:
        return  # it knows no other clock than the one that was set
    calm = honest(job, from_ms=2 * HOUR)
    found: Batches = [
        (
            DAY if waiting else max(plan_ms, plan_ms + by_ms),
            [{**r, "ts_wall_ms": r["ts_wall_ms"] + by_ms} for r in records] if n > 2 else records,
        )
        for n, (plan_ms, records) in enumerate(calm)
    ]
    assert refused(streamed(job, found, waiting=waiting)) == []


def test_a_broker_whose_start_was_not_reported_goes_on(job: Job) -> None:
    if not job.decides_by_mono:
        return
    calm = honest(job)
    again = [
        (plan_ms, [{**r, "ts_mono_ns": r["ts_mono_ns"] - START_NS + 1} for r in records])
        for plan_ms, records in honest(job, from_ms=MINUTE)
    ]
    more = [
        (
            n * MINUTE + plan_ms,
            [
                {
                    **r,
                    "ts_mono_ns": r["ts_mono_ns"] + n * MINUTE * MS,
                    "ts_wall_ms": r["ts_wall_ms"] + n * MINUTE,
                    "seq": r["seq"] + 200 * n,
                }
                for r in records
            ],
        )
        for n in range(4)
        for plan_ms, records in again
    ]
    last = [row for row in refused(streamed(job, [*calm, *more])) if row[1] >= 600]
    assert last == []
