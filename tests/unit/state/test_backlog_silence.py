"""Topics without a record for a long time: their checks become fewer, whatever the batches are."""

from __future__ import annotations

import random

import pytest

from tests.support.effort import examples
from tests.support.groups import log, offset
from tests.support.groups import rows as group_rows
from tests.unit.state.backlog_trace import T0, cursor, entry, ledger, policy, quota, record
from tests.unit.state.contract.jobs import JOBS, Rows, Sample, assert_same
from tests.unit.state.shipping import Row

JOB = JOBS["backlog"]
SECOND = 1000
DENSE = 4096
"""Checks since a topic's last record that no longer silence thins out."""
SILENCES_S = (1, 10, DENSE - 2, DENSE, DENSE + 1, 2 * DENSE, 20_000)
BY_SECOND = {"backlogQuotaCheckIntervalInSeconds": 1, "forecast_checks": 3}


def life(order: random.Random) -> tuple[list[Row], int]:
    """A topic that is stated at both ends of a few silences, with changes of what holds in
    between, and another one that is stated now and then; and the end of its last silence (ms)."""
    now, entries = 0, 10
    records = [ledger(0, 1, 10, 1000, T0 - 5000), cursor(0, "s", "1:3"), cursor(0, "q", "1:9")]
    for _ in range(3):
        silence = order.choice(SILENCES_S) * SECOND + order.choice((0, 0, 1, 500))
        within = now + order.randrange(1, silence)
        records.append(
            order.choice(
                (
                    policy(
                        within,
                        "broker",
                        "*",
                        backlogQuotaCheckIntervalInSeconds=order.choice((2, 3)),
                    ),
                    policy(within, "topic", "t/a/x", **quota(500, order.choice((6000, 30_000)))),
                    record("broker_started", within, topic=None),
                    cursor(within, "s", "1:4", topic="persistent://t/a/y"),
                )
            )
        )
        now += silence
        entries += 1
        records.append(
            order.choice(
                (
                    entry(now, 2, entries),
                    cursor(now, "s", f"1:{order.randrange(3, 10)}"),
                    ledger(now, 1, 10, 1000, T0 - 5000),
                )
            )
        )
        if order.random() < 0.5:
            records.append(cursor(now, "s", "1:9"))  # no backlog: no rows
    return records, now + order.choice(SILENCES_S) * SECOND


@pytest.mark.parametrize("seed", range(examples(12)))
def test_core_reference_and_any_cut_agree(seed: int) -> None:
    order = random.Random(seed)
    records, until_ms = life(order)
    records = sorted(records, key=lambda r: r["ts_wall_ms"])
    rows = order.choice(("all", "backlogged"))
    sample = Sample(records, {**BY_SECOND, "check_rows": rows}, (), T0 + until_ms)
    whole = JOB.play([records], sample)
    assert_same(whole, JOB.in_order(JOB.judge(sample)))
    ticks = [
        cursor(at, "s", "1:0", topic="persistent://t/a/tick")
        for at in range(0, until_ms, order.randrange(100, 5000) * SECOND)
    ]
    split = JOB.play(
        [[one] for one in sorted([*records, *ticks], key=lambda r: r["ts_wall_ms"])], sample
    )
    assert_same(without_ticks(split), whole)


def test_a_group_of_kafka_whose_polls_stopped_for_weeks() -> None:
    weeks = 21 * 24 * 3600 * SECOND
    polls = [log(0, 50), offset(0, 20), log(weeks, 90), offset(weeks, 20)]
    found = group_rows(polls, weeks + 60 * SECOND)["group_lag"]
    passes = [row["pass_ms"] - T0 for row in found]
    assert DENSE < len(passes) < 6 * DENSE
    assert passes[-6:] == [weeks + at * SECOND for at in (0, 10, 20, 30, 40, 50)]


def without_ticks(rows: Rows) -> Rows:
    return {
        name: [row for row in found if not row["topic"].endswith("/tick")]
        for name, found in rows.items()
    }


def test_the_first_record_of_a_broker_without_a_clock_costs_a_bounded_number_of_rows() -> None:
    """It is of 1970, and the next one of today."""
    first = [
        {**r, "ts_wall_ms": 0, "ts_mono_ns": 0}
        for r in (ledger(0, 1, 10, 1000, 0), cursor(0, "s", "1:3"))
    ]
    rows = JOB.play([[*first, cursor(0, "s", "1:4")]])
    passes = [row["pass_ms"] for row in rows["backlog_checks"]]
    assert passes[:DENSE] == list(range(0, DENSE * SECOND, SECOND))
    assert passes == sorted(set(passes)) and passes[-1] > 0.99 * T0
    assert len(passes) < 45_000
