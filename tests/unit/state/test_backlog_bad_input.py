"""The core of backlog on records that make little sense: as the reference, and within bounds."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from state.backlog import layout as L
from state.backlog import shard
from state.backlog.operator import Backlog
from state.engine.reach import Reach
from tests.reference.backlog import judge
from tests.unit.state.backlog_trace import (
    EVICTION,
    PARAMS,
    T0,
    TOPIC,
    Row,
    ack,
    blob,
    created,
    cursor,
    document,
    entry,
    ledger,
    numbered,
    play,
    policy,
    quota,
    record,
)
from tests.unit.state.contract.jobs import JOBS, Rows
from tests.unit.state.sizes import sizes_of

EVERY_SECOND: dict[str, Any] = {
    "backlogQuotaCheckIntervalInSeconds": 1,
    "check_rows": "all",
    "eviction_count_rule": "every_call",
    "preciseTimeBasedBacklogQuotaCheck": True,
}
LARGEST = 2**63 - 1


def both(
    records: list[Row], until_ms: int, policies: list[str] | None = None, **params: Any
) -> Rows:
    """Rows of the core, which are those of the reference; `until_ms` counted from the start."""
    chosen = {**EVERY_SECOND, **params}
    found = play([numbered(records)], chosen, policies or [], T0 + until_ms)
    JOBS["backlog"].assert_same(found, judge(records, chosen, policies or [], T0 + until_ms))
    return found


def test_mark_deletes_go_anywhere() -> None:
    places = (
        "1:3",
        "1:0",
        "1:-1",
        "9:7",
        "2:4",
        "1:99",
        "0:5",
        "2:-1",
        "3:0",
        f"{2**62}:{2**62}",
        "1:2",
        f"1:{2**62}",
        f"{LARGEST}:{LARGEST}",
        "3:1",
        f"3:{LARGEST}",
        "0:-1",
    )
    records = [
        ledger(0, 1, 5, 500, T0 - 7000),
        ledger(0, 2, 0, 0, T0 - 5000),
        ledger(0, 3, 2, 33),
        cursor(0, "q", "1:1"),
    ]
    for i, place in enumerate(places):
        records += [
            cursor(300 + 1000 * i, "s", place),
            ack(400 + 1000 * i, "s", 3, i % 4),
            ack(410 + 1000 * i, "s", 1, i % 6),
            ack(420 + 1000 * i, "s", 7, LARGEST - i % 2),
        ]
    for retention in (EVICTION, "producer_exception"):
        for apply in (True, False):
            limits = [document("topic", TOPIC, **quota(200, 4, retention))]
            rows = both(records, 17_001, limits, apply_evictions=apply)
            assert len(rows["backlog_checks"]) == 18


def test_ledgers_that_shrink_close_and_come_again() -> None:
    records = [cursor(0, "s", "1:7"), cursor(0, "r", "2:1", durable=False)]
    for i, (number, entries, size, close) in enumerate(
        (
            (1, 10, 1000, None),
            (1, 4, 300, None),
            (2, 3, 30, None),
            (1, 0, 50, 0),
            (2, 0, 0, None),
            (2, 9, 5, None),
            (1, 8, 0, T0 + 10**7),
            (3, 1, 1, T0 - 1),
            (2, 2, 3, T0 + 2000),
            (3, 1, 1, None),
            (0, 5, 55, None),
            (9, LARGEST // 4, 70, None),
        )
    ):
        at = 300 + 1000 * i
        records += [
            ledger(at, number, entries, size, close),
            entry(at + 1, number, entries),
            entry(at + 2, 2, i),
            entry(at + 3, 6 - i % 7, 3, publish_time_ms=None),
        ]
        if i % 4 == 3:
            records.append(record("ledger_deleted", at + 5, ledger_id=i // 2))
    for estimate in ("consumed_average", "ledger_sum"):
        for precise in (True, False):
            both(
                records,
                13_001,
                [document("broker", "*", backlogQuotaDefaultLimitSecond=2)],
                size_estimate=estimate,
                preciseTimeBasedBacklogQuotaCheck=precise,
            )


def test_what_is_not_known_is_passed_over() -> None:
    records = [
        record("cursor_deleted", 0, subscription="s"),
        ack(0, "s", 1, 1),
        record("ledger_deleted", 10, ledger_id=4),
        record("producer_closed", 20, cnx_id="c", producer_id=1),
        record("cursor_state", 30, subscription="s", read_pos="1:0"),
        cursor(1500, "s", "1:0"),
        created(1600, LARGEST),
        created(1600, LARGEST),
        ledger(2500, 1, 3, 30),
        policy(2500, "topic", TOPIC, **quota(1)),
        record("cursor_deleted", 3500, subscription="x"),
        cursor(3600, "", "1:0"),
        cursor(3600, "ä" * 3000, "1:1"),
    ]
    rows = both(records, 5001)
    assert [r["producers_disconnected"] for r in rows["backlog_checks"]] == [1, 1, 1]


def test_times_that_lie_ahead_or_far_back() -> None:
    records = [
        ledger(0, 1, 0, 0),
        cursor(0, "s", "1:-1", publish_time_ms=T0 + 9_999_999),
        entry(100, 1, 0, publish_time_ms=0),
        entry(200, 1, 1, publish_time_ms=LARGEST),
        cursor(1200, "s", "1:0"),
        cursor(2200, "s", "1:-1", broker_time_ms=LARGEST),
        cursor(3200, "s", "1:-1", publish_time_ms=0, ts_mono_ns=LARGEST // 2),
        entry(4200, 1, 2, publish_time_ms=T0 + 4700),
    ]
    rows = both(records, 5001, [document("topic", TOPIC, **quota(seconds=2**53))])
    assert rows["backlog_checks"][1]["age_s"] == -9998
    assert min(r["age_s"] for r in rows["backlog_checks"]) < -(2**52)


def test_limits_are_of_any_size() -> None:
    records = [
        ledger(0, 1, 4, LARGEST),
        ledger(0, 2, 4, LARGEST),
        cursor(0, "s", "1:-1"),
        created(0, 1),
    ]
    sizes = {
        "backlogQuotaDefaultLimitBytes": LARGEST,
        "backlogQuotaDefaultLimitSecond": LARGEST,
        "backlogQuotaCheckIntervalInSeconds": LARGEST,
        "backlogQuotaDefaultLimitGB": 2.0**62,
    }
    found = play([numbered(records)], EVERY_SECOND, [document("broker", "*", **sizes)], T0 + 10**9)
    assert found == {}
    del sizes["backlogQuotaCheckIntervalInSeconds"]
    found = play([numbered(records)], EVERY_SECOND, [document("broker", "*", **sizes)], T0 + 1)
    (row,) = found["backlog_checks"]
    assert (row["backlog_bytes"], row["limit_bytes"], row["limit_s"]) == (LARGEST,) * 3
    limits = quota(10.99, 0.5)["backlog_quota"] | {"destination_storage": {"limitSize": 1e18}}
    both(records[:1], 1, [document("topic", TOPIC, backlog_quota=limits)])


def test_a_clock_that_jumps() -> None:
    quiet = [
        ledger(0, 1, 5, 500),
        cursor(0, "s", "1:1"),
        cursor(1500, "s", "1:4"),
        policy(1_800_000, "topic", TOPIC, **quota(0)),
        policy(1_900_000, "topic", TOPIC),
        entry(3_600_000, 1, 5),
        entry(3_605_000, 1, 6),
    ]
    both(quiet, 3_606_001, check_rows="backlogged")
    both(
        [*quiet, cursor(7_200_500, "s", "1:-1")],
        7_203_001,
        check_rows="backlogged",
        backlogQuotaCheckEnabled=False,
    )
    both(
        [*FAR_APART, ledger(10 * 86_400_000, 1, 7, 700)],
        10 * 86_400_000 + 1,
        backlogQuotaCheckIntervalInSeconds=3600,
    )


FAR_APART = [ledger(0, 1, 5, 500), cursor(0, "s", "1:1"), ledger(86_400_000, 1, 9, 900)]


def test_a_silent_century_is_passed_over() -> None:
    century = 100 * 365 * 86_400_000
    records = [ledger(0, 1, 5, 500), cursor(0, "s", "1:4"), cursor(century, "s", "1:3")]
    call_job = Backlog({**PARAMS, **EVERY_SECOND, "check_rows": "backlogged"})
    call_job.step(None, [], Reach(0))
    began = time.process_time()
    step = call_job.step(None, [blob(numbered(records))], Reach(0))
    step = call_job.step(step.state, [], Reach(T0 + century + 1001))
    assert step.tables["backlog_checks"]["backlog_bytes"].to_pylist() == [100, 100]
    assert time.process_time() - began < 5


def test_many_subscriptions_come_in_any_order() -> None:
    """Rows are in the order of their names, and what comes later takes its place among them."""
    names = [f"s{i:05d}" for i in range(3000)]
    came = random.Random(1).sample(names, len(names))
    records = [ledger(0, 1, 10, 1000), *[cursor(0, name, "1:-1") for name in came[:2000]]]
    job = Backlog({**PARAMS, **EVERY_SECOND})
    state = job.step(None, [blob(numbered(records))], Reach(0)).state
    first = job.step(state, [], Reach(T0 + 500))
    later = blob(numbered([cursor(600, name, "1:-1") for name in came[2000:]]))
    state = job.step(first.state, [later], Reach(T0 + 500)).state
    last = job.step(state, [], Reach(T0 + 1500))
    rows = [step.tables["backlog_subscriptions"]["subscription"] for step in (first, last)]
    assert [each.to_pylist() for each in rows] == [sorted(came[:2000]), names]


@pytest.mark.parametrize("count", (30_000,))
def test_ranges_are_bounded(count: int) -> None:
    """Of acknowledgements with holes between them the first 10,000 are kept."""
    numbers = list(range(count))
    random.Random(1).shuffle(numbers)
    records = [ledger(0, 1, 3 * count, 100), cursor(0, "s", "1:-1")]
    records += [ack(100, "s", 1, 2 * i + 1) for i in numbers]
    job = Backlog({**PARAMS, **EVERY_SECOND})
    state = job.step(None, [blob(numbered(records))], Reach(0)).state
    state = job.step(state, [], Reach(T0 + 500)).state
    ranges = shard.read(state).parts["ranges"].T
    assert ranges.tolist() == [[1, 2 * i + 1, 2 * i + 1] for i in range(int(L.MOST_RANGES))]
    holes = [ack(600, "s", 1, 2 * i) for i in range(5000)]
    state = job.step(state, [blob(numbered(holes))], Reach(T0 + 500)).state
    state = job.step(state, [], Reach(T0 + 1500)).state
    s = shard.read(state)
    assert (int(s.parts["cursors"]["entry"][0]), len(s.parts["ranges"].T)) == (9999, 5000)


def test_samples_are_bounded() -> None:
    """Four in a second whatever the clocks of producers say, and those before the slowest go."""
    records = [ledger(0, 1, 0, 0), cursor(0, "s", "1:-1")]
    records += [entry(i, 1, i, publish_time_ms=T0 + 5000 * (i % 2)) for i in range(10_000)]
    job = Backlog({**PARAMS, **EVERY_SECOND})
    state = job.step(None, [blob(numbered(records))], Reach(0)).state
    state = job.step(state, [], Reach(T0 + 10_001)).state
    assert sizes_of(shard.read(state))["samples"] == 40
    state = job.step(
        state, [blob(numbered([cursor(10_500, "s", "1:9500")]))], Reach(T0 + 10_001)
    ).state
    state = job.step(state, [], Reach(T0 + 11_001)).state
    assert sizes_of(shard.read(state))["samples"] == 1


def test_many_subscriptions_and_ledgers() -> None:
    order = random.Random(5)
    records = [ledger(0, i, 10, 1000, T0 - 10_000 + i if i < 80 else None) for i in range(81)]
    records += [
        cursor(0, f"s{i}", f"{order.randrange(81)}:{order.randrange(-1, 10)}", durable=bool(i % 5))
        for i in range(150)
    ]
    order.shuffle(records)
    records += [cursor(1500, f"s{i}", f"{order.randrange(81)}:3") for i in range(0, 150, 7)]
    for precise in (True, False):
        for limits in (quota(30_000, retention=EVICTION), quota(seconds=8, retention=EVICTION)):
            rows = both(
                records,
                2001,
                [document("topic", TOPIC, **limits)],
                preciseTimeBasedBacklogQuotaCheck=precise,
                apply_evictions=True,
            )
            assert len(rows["backlog_subscriptions"]) == 450 and rows["backlog_evictions"]
