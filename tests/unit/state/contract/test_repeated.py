"""A record with feed, broker, seq and time of an earlier one is applied once (contract, 2)."""

from __future__ import annotations

from tests.unit.state.contract.jobs import Job, Sample, assert_same
from tests.unit.state.trace import START_MS

END = Sample((), until_ms=START_MS + 200_000)


def test_it_is_a_duplicate_while_the_first_waits_and_too_late_behind_the_clock(job: Job) -> None:
    once, later = job.event(1000, 1), job.event(2000, 2, number=2)
    again = {**once, "source_offset": 5}
    rows = job.play([[once, again], [again], [later], [again]], END)
    refused = rows.pop("quarantine")
    assert [(r["reason_code"], r["detail"], r["seq"]) for r in refused] == [
        ("DUPLICATE_RECORD", "", 1),
        ("DUPLICATE_RECORD", "", 1),
        ("TOO_LATE", "500 ms before the clock of its key", 1),
    ]
    assert {r["job"] for r in refused} == {job.name}
    assert_same(job.play([[once, later]], END), {**rows, "quarantine": []})


def test_the_first_of_its_order_is_kept_however_they_arrive(job: Job) -> None:
    """Repetitions need not be alike in all columns: the order of the contract decides."""
    one, two = job.event(1000, 1), job.event(1000, 1, number=2)
    whole = job.play([[one, two]], END)
    assert [r["reason_code"] for r in whole["quarantine"]] == ["DUPLICATE_RECORD"]
    assert_same(job.play([[two, one]], END), whole)
    assert_same(job.play([[two], [one]], END), whole)


def test_another_time_feed_broker_or_no_seq_is_no_repetition(job: Job) -> None:
    records = [
        job.event(1000, 1),
        job.event(1001, 1),
        job.event(1000, 1, source_feed="other"),
        job.event(1000, 1, broker="b9"),
        job.event(1000, None),
        job.event(1000, None),
    ]
    numbered = [{**r, "source_offset": i} for i, r in enumerate(records)]
    rows = job.play([numbered], END)
    assert rows["quarantine"] == []
    assert_same(job.play([[r] for r in numbered], END), rows)
