"""The core of producer_ids call by call: what comes late, and what its state keeps."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from state.engine.reach import Reach
from state.producer_ids import bloom, shard
from state.producer_ids.operator import ProducerIds
from state.producer_ids.shared import LAYERS, SAMPLES, SPAN_S
from tests.reference.producer_ids import judge
from tests.support import bloom_filters
from tests.unit.state.contract.jobs import JOBS, Rows
from tests.unit.state.producer_id_trace import (
    PARAMS,
    T0,
    batch,
    blob,
    numbered,
    other,
    play,
    policy,
    quota,
)
from tests.unit.state.sizes import sizes_of

JOB = JOBS["producer_ids"]
LARGEST = 2**63 - 1
SECOND = {SAMPLES: 11, SPAN_S: 1, "rate_unit": "second", "stats_window_ms": 1000}


def all_rows(records: list[dict[str, Any]], *args: Any) -> Rows:
    return play([numbered(records)], *args, until_ms=max(r["ts_wall_ms"] for r in records) + 1)


def decisions(records: list[dict[str, Any]], *args: Any) -> list[dict[str, Any]]:
    return JOB.in_order(all_rows(records, *args))["producer_id_decisions"]


def answers(job: ProducerIds) -> Any:
    """Calls a job again and again; answers the rows of each call."""
    state: bytes | None = None

    def call(
        records: list[dict[str, Any]],
        stream_ms: int = 0,
        home: int = 1,
        by: ProducerIds | None = None,
    ) -> Rows:
        nonlocal state
        blobs = [blob(numbered(records), home)] if records else []
        step = (by or job).step(state, blobs, Reach(stream_ms))
        state = step.state
        return {name: table.to_pylist() for name, table in step.tables.items()}

    return call


def job(policies: list[str] | None = None, **params: Any) -> ProducerIds:
    return ProducerIds({**PARAMS, **params}, policies or [])


def test_records_that_differ_only_in_late_columns_keep_their_order() -> None:
    records = [
        batch(pid, T0, topic=topic, partition=partition, client_id=client)
        for pid, topic, partition, client in (
            (5, "a-partition-9", 0, "c"),
            (4, "a-partition-10", 0, "c"),
            (3, "b", 10, None),
            (2, "b", 9, "a"),
            (1, "b", 10, ""),
            (6, "b", 10, "é"),
            (7, "b", 10, "z"),
        )
    ]
    random.Random(3).shuffle(records)
    rows = decisions(records)
    assert [r["producer_id"] for r in rows] == [4, 5, 2, 3, 1, 7, 6]
    assert [r["row_no"] for r in rows] == list(range(7))
    JOB.assert_same(all_rows(records), judge(records, {}, (), T0 + 1))


# -- policies and starts ---------------------------------------------------------------------


def test_a_late_policy_holds_from_the_clock_on() -> None:
    call = answers(job(**SECOND))
    call([batch(1, T0), batch(2, T0 + 5000)])
    rows = call([policy("u1", 7, T0 + 100), batch(3, T0 + 4500), batch(4, T0 + 9000)])
    assert [(r["producer_id"], r["bound"]) for r in rows["producer_id_decisions"]] == [
        (3, 7.0),
        (2, 7.0),
    ]
    rows = call([policy("u1", 3, T0 + 50), batch(5, T0 + 20_000)])
    assert [(r["producer_id"], r["bound"]) for r in rows["producer_id_decisions"]] == [(4, 7.0)]
    assert "quarantine" not in rows


def test_a_late_start_holds_from_the_clock_on_and_only_once() -> None:
    start = other("broker_started", T0 + 100, seq=None)
    call = answers(job(**SECOND, membership="exact"))
    call([batch(1, T0), batch(1, T0 + 1000)])
    rows = call([start, batch(-1, T0 + 1600)], T0 - 10_000)
    assert [r["recount"] for r in rows["producer_id_decisions"]] == [False]
    rows = call([start, batch(1, T0 + 1300), batch(2, T0 + 3000)], T0 - 9_000)
    assert "producer_id_decisions" not in rows
    rows = call([other("broker_started", T0 + 90), batch(2, T0 + 9000)], T0 - 9_000)
    assert [(r["producer_id"], r["recount"]) for r in rows["producer_id_decisions"]] == [(2, False)]


def test_settings_that_come_late_drop_what_was_too_old() -> None:
    def settings(at_ms: int, seconds: int) -> dict[str, Any]:
        document = {"scope": "broker", "name": "b1", "limits": {SPAN_S: seconds}}
        return other("policy", at_ms, policy_json=json.dumps(document))

    call = answers(job(**SECOND))
    call([batch(1, T0), batch(-1, T0 + 2100)])
    rows = call([settings(T0 + 50, 60), batch(1, T0 + 1700), batch(-1, T0 + 5000)])
    assert [r["live_filters"] for r in rows["producer_id_decisions"]] == [1]
    call = answers(job(**SECOND))
    call([batch(1, T0), batch(-1, T0 + 1500)])
    rows = call([settings(T0 + 50, 60), batch(1, T0 + 2700), batch(-1, T0 + 5000)])
    assert "producer_id_decisions" not in rows


def test_ids_that_were_counted_are_known_after_a_change_of_the_settings() -> None:
    document = {"scope": "broker", "name": "b1", "limits": {"producer.id.expiration.ms": 3_600_000}}
    change = other("policy", T0 + 100, policy_json=json.dumps(document))
    call = answers(job(**SECOND, membership="exact"))
    rows = call([batch(1, T0), change, batch(1, T0 + 1700), batch(-1, T0 + 5000)])
    assert [r["recount"] for r in rows["producer_id_decisions"]] == [False, True]


def test_configured_settings_hold_from_ever() -> None:
    document = {"scope": "broker", "name": "*", "limits": {"producer.id.expiration.ms": 5000}}
    records = [batch(1, T0), batch(1, T0 + 1500), batch(1, T0 + 6500)]
    rows = decisions(records, SECOND | {"membership": "exact"}, [json.dumps(document)])
    assert [r["recount"] for r in rows] == [False, True, False]


def test_changed_configuration_holds_from_the_clock_on() -> None:
    before = [quota("u1", 5), quota("<default>", 9)]
    after = [quota("u1", 6)]
    call = answers(job(before, **SECOND))
    rows = call(
        [
            batch(1, T0),
            batch(2, T0, "u2"),
            policy("u3", 8, T0, broker="*"),
            batch(3, T0, "u3"),
            batch(-1, T0 + 1000),
            batch(-1, T0 + 1000, "u2"),
            batch(-1, T0 + 1000, "u3"),
        ]
    )
    assert {r["user"]: r["bound"] for r in rows["producer_id_decisions"]} == {
        "u1": 5.0,
        "u2": 9.0,
        "u3": 8.0,
    }
    changed = job(after, **SECOND)
    rows = call(
        [batch(i, T0 + 2000, f"u{i - 3}") for i in (4, 5, 6, 7)]
        + [batch(-1, T0 + 3000, f"u{i}") for i in (1, 2, 3, 4)],
        T0 + 1500,
        by=changed,
    )
    assert {r["user"]: (r["bound"], r["bound_source"]) for r in rows["producer_id_decisions"]} == {
        "u1": (6.0, "user"),
        "u2": (2.0**63, "none"),
        "u3": (8.0, "user"),
        "u4": (2.0**63, "none"),
    }
    rows = call(
        [policy("u1", 1, T0 + 4000), batch(8, T0 + 5000), batch(-1, T0 + 9000)],
        T0 + 2000,
        by=changed,
    )
    assert [r["bound"] for r in rows["producer_id_decisions"]] == [1.0]


def test_replaced_policies_are_forgotten() -> None:
    call_job = job()
    state = None
    for i in range(50):
        at = T0 + i * 20_000
        told = [
            policy("u1", i, at),
            policy(f"v{i}", 3, at),
            policy(f"v{i}", None, at + 1),
            other("broker_started", at + 2),
        ]
        state = call_job.step(state, [blob(numbered([*told, batch(i, at + 3)]))], Reach(at)).state
    assert len(shard.read(state).meaning) < 12


def test_large_settings_stay_within_64_bits() -> None:
    limits = dict.fromkeys((SAMPLES, SPAN_S, LAYERS, "producer.id.expiration.ms"), LARGEST)
    document = json.dumps({"scope": "broker", "name": "*", "limits": limits})
    for mode in "ABCL":
        rows = decisions(
            [batch(1, T0), batch(1, T0 + 10**9), batch(2, T0 + 10**9)],
            {"window_mode": mode, "quota_math": "sampled_rate", "stats_window_ms": 10**9},
            [document],
        )
        assert [r["producer_id"] for r in rows] == [1, 2]


# -- state -----------------------------------------------------------------------------------


def test_filters_of_another_shape_are_given_up() -> None:
    call = answers(job())
    call([batch(1, T0), batch(-1, T0 + 1000)])
    rows = call([batch(1, T0 + 1100), batch(-1, T0 + 2000)], by=job(bloom_items=5))
    assert [r["live_filters"] for r in rows["producer_id_decisions"]] == [1]


def test_a_silent_user_is_forgotten() -> None:
    call_job = job(**{SPAN_S: 1}, idle_state_ms=20_000)
    state = call_job.step(
        None, [blob(numbered([batch(1, T0), batch(2, T0, "u2")]))], Reach(0)
    ).state
    step = call_job.step(state, [], Reach(T0 + 19_000))
    assert len(shard.read(step.state).parts["keys"]) == 2
    assert step.wake_at_ms is not None
    step = call_job.step(step.state, [], Reach(T0 + 80_001))
    found = shard.read(step.state)
    assert {name: len(part) for name, part in found.parts.items() if len(part)} == {}
    assert step.wake_at_ms is None


@pytest.mark.parametrize("math", ["sampled_rate", "token_bucket"])
def test_the_quota_of_a_silent_user_is_stored_as_a_new_one_while_its_filters_live(
    math: str,
) -> None:
    call_job = job([quota("u1", 1)], idle_state_ms=20_000, quota_math=math)
    state = call_job.step(None, [blob(numbered([batch(1, T0)]))], Reach(0)).state
    for stream_ms, used in ((T0 + 20_000, 1), (T0 + 20_001, 0)):
        state = call_job.step(state, [], Reach(stream_ms)).state
        found = shard.read(state).parts
        (key,) = found["keys"]
        assert (int(key["used"]), len(found["sample_total"]), len(found["filters"])) == (
            used,
            used,
            1,
        )
    assert (float(key["tokens"]), int(key["refilled_ms"]), int(key["recorded_ms"])) == (
        0.0,
        0,
        int(shard.NULL),
    )


def test_filters_are_what_their_bits_would_be() -> None:
    """Lists of ids, and the bits that they become, answer as bits do."""
    shape = bloom.shape_of(40, 0.2)
    params = {"bloom_items": 40, "bloom_fpp": 0.2, "stats_window_ms": 1000}
    call = answers(job(**params))
    order = random.Random(7)
    bits = np.zeros(shape.words, np.uint64)
    expected, counted, filled = [], [], []
    for i in range(60):
        pid = order.randrange(LARGEST)
        new = bloom_filters.contains_ids(bits, 0, *shape, np.array([pid]), np.zeros(1, bool)) == 0
        if new:
            bloom.densify(np.array([pid], np.uint64), 0, 1, bits, 0, *shape)
            expected.append(pid)
        rows = call([batch(pid, T0 + i * 1000)])
        counted += [r["producer_id"] for r in rows.get("producer_id_decisions", [])]
        filled += [r["filter_fill"] for r in rows.get("producer_id_stats", [])]
    rows = call([], T0 + 60_000)
    counted += [r["producer_id"] for r in rows.get("producer_id_decisions", [])]
    filled += [r["filter_fill"] for r in rows["producer_id_stats"]]
    assert counted == expected
    assert len(expected) < 60
    assert filled[-1] == bloom_filters.bits_set(bits, 0, shape.bits) / shape.bits


def test_memory_of_a_flood_is_that_of_its_filters() -> None:
    records = numbered([batch(i, T0 + i // 100) for i in range(20_000)])
    state = job().step(None, [blob(records)], Reach(0)).state
    state = job().step(state, [], Reach(T0 + 1000)).state
    found = sizes_of(shard.read(state))
    assert (found["filters"], found["words"], found["waiting"]) == (1, 150, 0)
    assert len(state) < 8000


# -- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize("membership", ("exact", "bloom"))
def test_unusual_records(membership: str) -> None:
    long = "User:" + "ä" * 5000
    records = [
        batch(-1, T0),
        batch(-2, T0),
        batch(-(2**63) + 1, T0),
        batch(LARGEST, T0),
        batch(LARGEST, T0 + 1),
        batch(0, T0 + 1),
        batch(1, T0 + 2, principal=long),
        batch(1, T0 + 3, principal=""),
        batch(2, T0 + 3, principal="User:"),
        batch(3, T0 + 4, principal=":\n:x"),
        batch(4, T0 + 5, principal="a\nb:c"),
        other("producer_id_assigned", T0 + 6, principal="User:u1", producer_id=-1),
        other("producer_id_assigned", T0 + 6, principal="User:u1", producer_id=LARGEST),
        other(
            "policy",
            T0 + 7,
            policy_json=json.dumps(
                {"scope": "topic", "name": "t/n/a", "limits": {"publishRateInMsgs": 3}}
            ),
        ),
        batch(
            5,
            T0 + 8,
            producer_name="p",
            ledger_id=LARGEST,
            entry_id=LARGEST,
            seq=-(2**63),
            entry_bytes=LARGEST,
            num_messages=2**31 - 1,
            sequence_id=-(2**63) + 1,
        ),
    ]
    rows = JOB.in_order(all_rows(records, {"membership": membership}))
    assert sorted((r["user"], r["producer_id"]) for r in rows["producer_id_decisions"]) == sorted(
        [
            ("u1", LARGEST),
            ("u1", 0),
            (long[5:], 1),
            ("", 1),
            ("", 2),
            ("\n:x", 3),
            ("c", 4),
            ("u1", 5),
        ]
    )
    assert sum(r["rule"] == "assigned" for r in rows["producer_id_owners"]) == 1
    good = [r for r in records if r.get("producer_id", 0) >= -1]
    JOB.assert_same(rows, judge(good, {"membership": membership}, (), T0 + 9))
