"""The job producer_ids on its vectors and at its boundaries: core and reference alike."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.reference.producer_ids import SAMPLES, WINDOW_S, user_of
from tests.unit.state import both
from tests.unit.state.contract.jobs import Rows
from tests.unit.state.producer_id_trace import T0, batch, other, quota
from tests.unit.state.recorded import vectors

VECTORS = "producer_ids.json"
SECOND = {SAMPLES: 11, WINDOW_S: 1, "rate_unit": "second", "stats_window_ms": 1000}
Row = dict[str, Any]
pytestmark = pytest.mark.usefixtures("runner")


def judge(records: list[Row], *args: Any, **more: Any) -> Rows:
    return both.judge("producer_ids", records, *args, **more)


def decisions(records: list[Row], *args: Any) -> list[Row]:
    return judge(records, *args)["producer_id_decisions"]


def life_cycle_params(vector: dict[str, Any]) -> dict[str, Any]:
    p = vector["params"]
    return {WINDOW_S: p["window_s"]} | {
        name: p[name] for name in ("window_mode", "refresh_on_hit", "membership")
    }


LIFE_CYCLE = vectors(VECTORS, "filter_lifecycle")


@pytest.mark.parametrize("vector", [v for v in LIFE_CYCLE if "steps" in v], ids=lambda v: v["id"])
@pytest.mark.parametrize("membership", ("exact", "bloom"))
def test_filter_life_cycle_vector(vector: dict[str, Any], membership: str) -> None:
    params = life_cycle_params(vector) | {"membership": membership, "stats_window_ms": 1000}
    steps = [s for s in vector["steps"] if s["op"] != "users"]
    records = [batch(s["producer_id"], T0 + s["at_s"] * 1000, s["user"]) for s in steps]
    rows = decisions(records, params)
    assert [
        (r["user"], r["ts_wall_ms"] - T0, r["producer_id"], r["live_filters"]) for r in rows
    ] == sorted(
        (s["user"], s["at_s"] * 1000, s["producer_id"], s["expect"]["live_filters"])
        for s in steps
        if s["expect"]["verdict"] == "new"
    )
    for step in [s for s in vector["steps"] if s["op"] == "users"]:
        at = T0 + step["at_s"] * 1000
        before = [r for r in records if r["ts_wall_ms"] < at]
        stats = judge(before, params, until_ms=at)["producer_id_stats"]
        assert [r["user"] for r in stats if r["ts_wall_ms"] == at and r["live_filters"]] == step[
            "expect"
        ]["users"]


@pytest.mark.parametrize("membership", ("exact", "bloom"))
def test_a_producer_id_in_steady_use_is_counted_after_each_disposal(membership: str) -> None:
    (v,) = [v for v in LIFE_CYCLE if v["id"] == "PQ3"]
    g = v["given"]
    records = [
        batch(g["producer_id"], T0 + at * 1000, g["user"])
        for at in range(g["from_s"], g["to_s"] + 1, g["every_s"])
    ]
    rows = decisions(records, life_cycle_params(v) | {"membership": membership})
    assert {
        "counted_at_s": [(r["ts_wall_ms"] - T0) // 1000 for r in rows],
        "count": len(rows),
    } == v["expect"]
    exact = membership == "exact"
    assert [r["recount"] for r in rows] == ([False, True, True] if exact else [None] * 3)
    if exact:
        assert [r["rule"] for r in rows] == [
            "unseen_within_bound",
            "recounted_after_disposal",
            "recounted_after_disposal",
        ]


@pytest.mark.parametrize("vector", vectors(VECTORS, "bound"), ids=lambda v: v["id"])
@pytest.mark.parametrize("configured", (True, False))
def test_bound_vector(vector: dict[str, Any], configured: bool) -> None:
    quotas = [
        quota(q["user"], q["producer_ids_rate"]) for q in vector["params"]["quotas"] if "user" in q
    ]
    records = [
        batch(i, T0, g["user"], client_id=g["client_id"]) for i, g in enumerate(vector["given"])
    ]
    policies = [other("policy", T0, policy_json=q) for q in quotas]
    rows = (
        decisions([*records, *policies], {}) if not configured else decisions(records, {}, quotas)
    )
    assert [
        {"bound": r["bound"], "bound_source": r["bound_source"]}
        for r in sorted(rows, key=lambda r: r["producer_id"])
    ] == vector["expect"]


@pytest.mark.parametrize("vector", vectors(VECTORS, "burst"), ids=lambda v: v["id"])
def test_burst_vector(vector: dict[str, Any]) -> None:
    g = vector["given"]
    params = {SAMPLES: g["samples"], WINDOW_S: g["window_s"], "rate_unit": g["rate_unit"]}
    (row,) = decisions([batch(1, T0)], params, [quota("u1", g["producer_ids_rate"])])
    assert row["tokens"] == pytest.approx(vector["expect"]["burst"] - 1, rel=1e-12)


@pytest.mark.parametrize("vector", vectors(VECTORS, "bloom_size"), ids=lambda v: v["id"])
def test_bloom_size_vector(vector: dict[str, Any]) -> None:
    g, expect = vector["given"], vector["expect"]
    params = {"bloom_items": g["n"], "bloom_fpp": g["p"], "bloom_rounding": "ceil"}
    row = judge([batch(1, T0)], params, until_ms=T0 + 60_000)["producer_id_stats"][-1]
    assert row["state_bytes"] == expect["bytes"]
    assert row["filter_fill"] == pytest.approx(expect["k"] / expect["m_ceil"], rel=0.2)
    assert row["estimated_fpp"] == pytest.approx(row["filter_fill"] ** expect["k"], rel=1e-12)


def test_bucket_vectors_one_by_one() -> None:
    rows = decisions([batch(i, T0) for i in range(13)], SECOND, [quota("u1", 1)])
    assert [r["verdict"] for r in rows] == ["counted"] * 12 + ["rejected"]
    assert [r["throttle_ms"] for r in rows] == [0] * 12 + [1000]
    ten = SECOND | {SAMPLES: 10}
    rows = decisions([batch(i, T0) for i in range(200)], ten, [quota("u1", 10)])
    assert Counter(r["verdict"] for r in rows) == {"counted": 101, "rejected": 99}
    rows = decisions(
        [batch(i, T0) for i in range(270)], ten | {"enforcement": "permissive"}, [quota("u1", 10)]
    )
    assert [rows[i]["throttle_ms"] for i in (89, 179, 269)] == [0, 8000, 17_000]
    hundred = SECOND | {SAMPLES: 100, "enforcement": "permissive"}
    rows = decisions([batch(i, T0) for i in range(560)], hundred, [quota("u1", 5)])
    assert (rows[-1]["tokens"], rows[-1]["throttle_ms"]) == (-60.0, 12_000)


def test_rate_vectors_one_by_one() -> None:
    rates = SECOND | {
        "quota_math": "sampled_rate",
        "enforcement": "permissive",
        "membership": "exact",
    }
    for bound, throttle_ms in ((10, 0), (5, 10_000)):
        row = decisions([batch(i, T0) for i in range(100)], rates, [quota("u1", bound)])[-1]
        assert (row["rate"], row["throttle_ms"], row["tokens"]) == (10.0, throttle_ms, None)
    times = [T0 + 1000 * i for i in range(10) for _ in range(400)] + [T0 + 10_500] * 2300
    rows = decisions([batch(i, t) for i, t in enumerate(times)], rates, [quota("u1", 500)])
    assert (rows[-1]["rate"], rows[-1]["throttle_ms"]) == (600.0, 2100)


def test_bound_zero() -> None:
    records = [batch(i, T0) for i in range(3)]
    zero = [quota("u1", 0)]
    for defects, most in (([], 2**31 - 1), (["Q1"], -1)):
        rows = decisions(records, SECOND | {"defects": defects}, zero)
        assert [r["verdict"] for r in rows] == ["counted", "rejected", "rejected"]
        assert [r["throttle_ms"] for r in rows] == [0, most, most]
        rows = decisions(records, SECOND | {"defects": defects, "enforcement": "permissive"}, zero)
        assert [r["verdict"] for r in rows] == ["throttled"] * 3
        assert [r["throttle_ms"] for r in rows] == [most] * 3


def test_moving_between_levels_keeps_the_history() -> None:
    records = [
        batch(1, T0),
        other("policy", T0 + 1, policy_json=quota("u1", 1)),
        batch(2, T0 + 2),
        other("policy", T0 + 3, policy_json=quota("u1", None)),
        batch(3, T0 + 4),
        other("policy", T0 + 5, policy_json=quota("<default>", -1)),
        batch(4, T0 + 6),
    ]
    rows = decisions(records, SECOND, [quota("<default>", 10)])
    assert [(r["bound"], r["bound_source"]) for r in rows] == [
        (10.0, "default_user"),
        (1.0, "user"),
        (10.0, "default_user"),
        (2.0**63, "none"),
    ]
    assert [r["tokens"] for r in rows][:3] == [109.0, 10.0, 9.0 + 10 * 0.002]


def test_spellings_of_a_user() -> None:
    for principal, user in (
        ("User:alice", "alice"),
        ("alice", "alice"),
        ("User:a:b", "a:b"),
        ("User:", ""),
    ):
        assert user_of(principal) == user
    rows = decisions(
        [batch(1, T0, principal=p) for p in ("User:alice", "alice", "Group:alice", "User:bob")], {}
    )
    assert [r["user"] for r in rows] == ["alice", "bob"]


def test_a_restart_makes_every_producer_id_unseen() -> None:
    records = [batch(1, T0), other("broker_started", T0 + 5), batch(1, T0 + 10)]
    rows = decisions(records, SECOND | {"membership": "exact"}, [quota("u1", 1)])
    assert [(r["recount"], r["tokens"]) for r in rows] == [(False, 10.0), (False, 10.0)]


def test_an_idle_sensor_is_dropped_with_its_history() -> None:
    first = T0 + 3_600_000
    for later, tokens in ((first, 8.0), (first + 1, 10.0)):
        rows = decisions([batch(1, T0), batch(2, later)], SECOND, [quota("u1", 1e-12)])
        assert [r["verdict"] for r in rows] == ["counted", "rejected" if tokens == 8 else "counted"]


def test_rejected_producer_ids_leave_no_trace() -> None:
    records = [batch(1, T0), batch(2, T0 + 2000), batch(2, T0 + 2001)]
    zero = [quota("u1", 0)]
    rows = decisions(records, SECOND, zero)
    assert [r["live_filters"] for r in rows] == [1, 0, 0]
    assert [r["filter_created_ms"] for r in rows] == [T0, None, None]
    rows = decisions(records, SECOND | {"insert_rejected": True}, zero)
    assert [r["live_filters"] for r in rows] == [1, 1]
    assert [r["filter_created_ms"] for r in rows] == [T0, None]


def test_windows_of_a_user() -> None:
    params = SECOND | {"quota_math": "sampled_rate", SAMPLES: 2, "membership": "exact"}
    rows = judge(
        [batch(1, T0 + 500), batch(1, T0 + 600), batch(-1, T0 + 9000)],
        params,
        [quota("u1", 2)],
        T0 + 20_000,
    )["producer_id_stats"]
    names = ("new_ids", "seen_batches", "live_filters", "rate", "utilisation", "state_bytes")
    assert [[r["window_start_ms"] - T0, *[r[n] for n in names]] for r in rows] == [
        [0, 1, 1, 1, 1 / 1.5, 1 / 1.5 / 2, 8],
        [1000, 0, 0, 0, 1 / 1.5, 1 / 1.5 / 2, 0],
    ]
    for row in rows:
        assert row["rule"] == "window"
        assert row["ts_mono_ns"] == row["ts_wall_ms"] * 1_000_000
        assert [row[n] for n in ("tokens", "throttle_time_avg_ms", "filter_fill")] == [None] * 3


def test_settings_of_a_broker() -> None:
    def setting(name: str, **limits: Any) -> str:
        return json.dumps({"scope": "broker", "name": name, "limits": limits})

    everywhere, own = setting("*", **{WINDOW_S: 2}), setting("b1", **{WINDOW_S: 4})
    records = [batch(1, T0), batch(1, T0 + 2999), batch(1, T0 + 3000), batch(1, T0 + 6000)]
    for configured, times in (
        ([], [0]),
        ([everywhere], [0, 3000, 6000]),
        ([own], [0, 6000]),
        ([own, everywhere], [0, 6000]),
    ):
        rows = decisions(records, {}, configured)
        assert [r["ts_wall_ms"] - T0 for r in rows] == times
    changed = [*records, other("policy", T0 + 1, policy_json=everywhere)]
    assert [r["ts_wall_ms"] - T0 for r in decisions(changed, {})] == [0, 3000, 6000]
