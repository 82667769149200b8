"""The core of backlog: equal to the reference, however a trace is cut, and within bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.backlog import shard
from state.backlog.operator import Backlog
from state.engine.reach import Reach
from tests.reference import backlog as reference
from tests.reference.backlog import judge
from tests.support.effort import LOOKED_FOR, drawn
from tests.unit.state.backlog_reference import (
    BROKER_QUOTAS,
    PHASE_MS,
    POLLS,
    ROLES,
    events_of_the_run,
)
from tests.unit.state.backlog_trace import (
    EVICTION,
    PARAMS,
    T0,
    TOPIC,
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
from tests.unit.state.contract import awake
from tests.unit.state.contract.jobs import JOBS
from tests.unit.state.shipping import Row
from tests.unit.state.sizes import sizes_of

Rows = dict[str, list[dict[str, Any]]]


# -- random traces ---------------------------------------------------------------------------


MOST = reference.INT_MAX
"""Entries that a round of an eviction by size skips at most."""
FIRST_ACKED = (0, 7, 6 * MOST, 15 * MOST, 30 * MOST)
"""Where acknowledged entries begin."""


@st.composite
def overtaking(draw: st.DrawFn) -> list[Row]:
    """Cursors of a few ledgers of many entries that are about to be evicted by size.

    Half of the traces have a ledger that is long enough for many rounds and cursors beside each
    other in it.
    """
    beside = draw(st.booleans())
    entries = st.integers(0, 40 * MOST)
    ledgers = draw(
        st.lists(
            st.tuples(
                st.integers(20 * MOST, 40 * MOST) if beside else entries,
                st.sampled_from((0.3, 1, 2.5, 700) if beside else (0, 0.3, 1, 2.5, 700)),
            ),
            min_size=1,
            max_size=3,
        )
    )
    records = [
        ledger(0, i, entries, int(entries * average) + 1000, T0 - 1000)
        for i, (entries, average) in enumerate(ledgers)
    ]
    for i in range(draw(st.integers(2 if beside else 1, 4))):
        at = draw(st.integers(0, 1 if beside else 5)) * MOST + draw(st.integers(-1, 1))
        number = 0 if beside else draw(st.integers(0, len(ledgers) - 1))
        acked = [
            f"{number}:{first}..{first + draw(st.sampled_from((0, 5, MOST, 3 * MOST)))}"
            for first in draw(st.lists(st.sampled_from(FIRST_ACKED), max_size=2, unique=True))
        ]
        records.append(
            cursor(
                0,
                f"s{i}",
                f"{number}:{max(at, -1)}",
                durable=i < 3,
                acked_ranges=",".join(sorted(acked, key=lambda r: int(r[2:].split("..")[0]))),
            )
        )
    size = sum(r["ledger_bytes"] for r in records if r["event_type"] == "ledger_state")
    share = draw(st.sampled_from((0.0, 0.01, 0.3, 0.9)))
    return [*records, policy(0, "topic", TOPIC, **quota(int(size * share), retention=EVICTION))]


@pytest.mark.parametrize("estimate", ["consumed_average", "ledger_sum"])
def test_cursors_that_overtake_one_another(estimate: str) -> None:
    rounds: list[int] = []

    @drawn(400, LOOKED_FOR)
    @given(overtaking())
    def check(records: list[Row]) -> None:
        params = {
            **PARAMS,
            "backlogQuotaCheckIntervalInSeconds": 1,
            "size_estimate": estimate,
            "apply_evictions": True,
        }
        expected = judge(records, params, [], T0 + 2001)
        rounds.extend(row["rounds"] for row in expected["backlog_evictions"])
        JOBS["backlog"].assert_same(play([numbered(records)], params, [], T0 + 2001), expected)

    check()
    assert max(rounds) > reference.MOST_ROUNDS and min(rounds) == 0


# -- late and repeated -----------------------------------------------------------------------


def answers(job: Backlog) -> Any:
    """Calls a job again and again; answers the rows of each call."""
    state: bytes | None = None

    def call(
        records: list[dict[str, Any]], stream_ms: int = 0, home: int = 1, by: Backlog | None = None
    ) -> Rows:
        nonlocal state
        blobs = [blob(numbered(records), home)] if records else []
        step = (by or job).step(state, blobs, Reach(T0 + stream_ms if stream_ms else 0))
        state = step.state
        return {name: table.to_pylist() for name, table in step.tables.items()}

    return call


def job(policies: list[str] | None = None, **params: Any) -> Backlog:
    every_second = {"backlogQuotaCheckIntervalInSeconds": 1, "check_rows": "all"}
    return Backlog({**PARAMS, **every_second, **params}, policies or [])


FIRST = [ledger(0, 1, 5, 500), cursor(0, "s", "1:-1")]


def passes(rows: Rows, column: str = "limit_bytes") -> dict[int, Any]:
    """One column of checks by time."""
    return {r["pass_ms"] - T0: r[column] for r in rows.get("backlog_checks", [])}


# -- policies and starts ---------------------------------------------------------------------


def test_a_late_policy_holds_from_the_clock_on() -> None:
    call = answers(job())
    assert passes(call([*FIRST, ledger(2600, 1, 5, 500)])) == dict.fromkeys((0, 1000, 2000))
    call([policy(100, "topic", TOPIC, **quota(7))])
    assert passes(call([ledger(5000, 1, 5, 500)])) == {3000: 7, 4000: 7}
    call([policy(50, "topic", TOPIC, **quota(3))])
    assert passes(call([ledger(7000, 1, 5, 500)])) == {5000: 7, 6000: 7}


def test_a_late_interval_holds_from_the_clock_on() -> None:
    call = answers(job())
    call([*FIRST, ledger(2600, 1, 5, 500)])
    call([policy(100, "broker", "*", backlogQuotaCheckIntervalInSeconds=5)])
    assert list(passes(call([ledger(11_000, 1, 5, 500)]))) == [5000, 10_000]
    call([policy(11_000, "broker", "b1", backlogQuotaCheckIntervalInSeconds=2)])
    assert list(passes(call([ledger(15_000, 1, 5, 500)]))) == [12_000, 14_000]
    rows = call([ledger(15_000, 1, 5, 500, broker="b2"), ledger(21_000, 1, 5, 500, broker="b2")])
    assert list(passes(rows)) == [15_000, 20_000]


def test_a_late_start_holds_from_the_clock_on_and_only_once() -> None:
    start = record("broker_started", 100, topic=None)
    limit = [document("topic", TOPIC, **quota(1))]

    def producers(rows: Rows) -> list[int]:
        return list(passes(rows, "producers_disconnected").values())

    call = answers(job(limit))
    rows = call([created(0, 1), *FIRST, created(0, 2, broker="b1"), ledger(1600, 1, 5, 500)])
    assert producers(rows) == [2, 2]
    assert producers(call([start, ledger(3600, 1, 5, 500)])) == [0, 0]
    call = answers(job())
    call([*FIRST, created(0, 1), ledger(1600, 1, 5, 500)])
    call([start, created(1700, 2), policy(1800, "topic", TOPIC, **quota(1))])
    assert producers(call([start, ledger(3600, 1, 5, 500)])) == [1, 1]
    call([record("broker_started", 90, topic=None)])
    assert producers(call([ledger(5600, 1, 5, 500)])) == [1, 1]


def test_changed_configuration_holds_from_the_clock_on() -> None:
    before = [
        document("namespace", "t/a", **quota(5)),
        document("topic", "t/a/x", **quota(6)),
        document("broker", "*", backlogQuotaDefaultLimitBytes=9),
    ]
    after = [
        document("namespace", "t/a", **quota(8)),
        document("broker", "*", backlogQuotaDefaultLimitBytes=9),
    ]
    other = [{**r, "topic": "persistent://t/b/x"} for r in FIRST]
    call = answers(job(before))
    rows = call([*FIRST, *other, ledger(1600, 1, 5, 500)])
    assert passes(rows) == {0: 6, 1000: 6}
    changed = job(after)
    rows = call([ledger(3600, 1, 5, 500)], 1500, by=changed)
    assert [
        (r["topic"], r["limit_bytes"], r["limit_source_size"])
        for r in JOBS["backlog"].in_order(rows)["backlog_checks"]
    ] == [
        (TOPIC, 8, "namespace"),
        (TOPIC, 8, "namespace"),
        *[("persistent://t/b/x", 9, "broker")] * 2,
    ]
    call([policy(4000, "namespace", "t/a", publishRateInMsgs=1)], 1500, by=changed)
    assert passes(call([ledger(5600, 1, 5, 500)], 1500, by=changed)) == {4000: 9, 5000: 9}


def test_replaced_policies_are_forgotten() -> None:
    call_job, state = job(), None
    for i in range(50):
        at = i * 20_000
        told = [
            policy(at, "topic", TOPIC, **quota(i)),
            policy(at, "topic", f"t/a/{i}", **quota(i)),
            policy(at + 1, "topic", f"t/a/{i}"),
            policy(at, "user", "u", producer_ids_rate=1),
            record("broker_started", at + 2, topic=None),
            policy(at, "broker", "b1", backlogQuotaDefaultLimitBytes=i),
        ]
        batch = [blob(numbered([*told, ledger(at + 3, 1, 1, 1)]))]
        state = call_job.step(state, batch, Reach(T0 + at)).state
    assert state is not None and len(shard.read(state).meaning) < 14


# -- state -----------------------------------------------------------------------------------


def test_a_topic_without_anything_is_forgotten() -> None:
    call_job = job()
    gone = [
        record("cursor_deleted", 5100, subscription="s"),
        record("ledger_deleted", 5100, ledger_id=1),
    ]
    other = [{**r, "topic": "non-persistent://t/a/n"} for r in FIRST]
    batch = [blob(numbered([*FIRST, *other, *gone]))]
    step = call_job.step(None, batch, Reach(0))
    assert step.wake_at_ms == T0
    step = call_job.step(step.state, [], Reach(T0 + 5500))
    assert step.wake_at_ms == T0 + 6000
    step = call_job.step(step.state, [], Reach(T0 + 6001))
    assert set(sizes_of(shard.read(step.state)).values()) == {0}
    assert step.wake_at_ms is None


def test_the_checks_that_cursors_remember_may_change() -> None:
    """More are remembered from then on, of fewer the last ones."""
    records = [*FIRST, *[entry(500 + 1000 * i, 1, 5 + i % 5 * i) for i in range(16)]]
    expected = {
        n: [
            r["growth_rate"]
            for r in judge(
                records,
                {
                    "backlogQuotaCheckIntervalInSeconds": 1,
                    "forecast_checks": n,
                    "check_rows": "all",
                },
                (),
                T0 + 15_001,
            )["backlog_subscriptions"]
        ]
        for n in (3, 6)
    }
    for before, after in ((6, 3), (3, 6)):
        call = answers(job(forecast_checks=before))
        rows = call(records[:9])
        got = [r["growth_rate"] for r in rows["backlog_subscriptions"]]
        assert got == expected[before][: len(got)]
        rows = call(records[9:], 0, by=job(forecast_checks=after))
        rows = call([], 15_001, by=job(forecast_checks=after))
        got = [r["growth_rate"] for r in rows["backlog_subscriptions"]]
        assert got and got == expected[after][-len(got) :]


def test_a_silent_topic_is_checked_when_the_shard_is_woken() -> None:
    call_job = job(backlogQuotaCheckIntervalInSeconds=60)
    step = call_job.step(None, [blob(numbered(FIRST))], Reach(0))
    assert step.wake_at_ms == T0
    step = call_job.step(step.state, [], Reach(T0 + 1))
    assert step.tables["backlog_checks"].num_rows == 1
    assert step.wake_at_ms == T0 + 60_000
    assert call_job.step(step.state, [], Reach(T0 + 60_000)).tables == {}
    assert call_job.step(step.state, [], Reach(T0 + 60_001)).tables["backlog_checks"].num_rows == 1


def test_state_of_idle_topics_is_small() -> None:
    records = [
        {**r, "topic": f"persistent://t/a/{i}"}
        for i in range(2000)
        for r in (
            ledger(0, 1, 100, 10_000, T0 - 5),
            ledger(0, 2, 100, 10_000, T0 - 1),
            ledger(0, 3, 50, 5000),
            cursor(0, "s", f"1:{i % 100}"),
            cursor(0, "q", f"2:{i % 90}"),
        )
    ]
    state = job().step(None, [blob(numbered(records))], Reach(0)).state
    state = job().step(state, [], Reach(T0 + 20_001)).state
    assert sizes_of(shard.read(state))["resting"] == 2000
    s = awake.backlog(state)
    assert sizes_of(s) == {
        "keys": 2000,
        "cursors": 4000,
        "ledgers": 6000,
        "samples": 2000,
        "producers": 0,
        "ranges": 0,
        "shared": 0,
        "waiting": 0,
        "resting": 0,
    }
    # A cursor has its position, what it is ahead of, and when the broker answered for it.
    assert sum(part.nbytes for part in s.parts.values()) < 1550 * 2000
    assert len(state) < 200 * 2000
    step = job().step(state, [], Reach(T0 + 20_500))
    assert step.tables == {} and len(step.state) == len(state)


@pytest.mark.parametrize("precise", (True, False))
def test_the_recorded_run(precise: bool) -> None:
    """The reference's rows of the run, which agree with what the broker answered."""
    configured = [
        json.dumps(
            {
                "scope": "namespace",
                "name": f"public/{name}",
                "limits": {"backlog_quota": BROKER_QUOTAS[role]},
            }
        )
        for name, role in ROLES.items()
    ]
    params: dict[str, Any] = {
        "preciseTimeBasedBacklogQuotaCheck": precise,
        "backlogQuotaCheckIntervalInSeconds": 2,
        "check_rows": "all",
        "eviction_count_rule": "every_call",
        "apply_evictions": precise,
    }
    end = POLLS[-1]["wall_after_ms"] - PHASE_MS + 1
    events = events_of_the_run()
    expected = judge(events, params, configured, end)
    got = play([numbered(events)], params, configured, end)
    JOBS["backlog"].assert_same(got, expected)
    assert len(got["backlog_evictions"]) > 5 or not precise
    by_time = sorted(numbered(events), key=lambda r: r["ts_wall_ms"])
    batches = [by_time[i : i + 400] for i in range(0, len(by_time), 400)]
    JOBS["backlog"].assert_same(play(batches, params, configured, end), expected)
