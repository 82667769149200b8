"""The reference of producer_ids against its vectors, Kafka's classes, and random traces."""

from __future__ import annotations

import json
import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given

from tests.effort import drawn
from tests.reference.producer_ids import (
    EXPIRATION_MS,
    OWN,
    SAMPLES,
    TABLES,
    WINDOW_S,
    Row,
    Rules,
    Sensor,
    User,
    judge,
    key_of,
    keys_of,
    play,
    records_of,
    reported,
    round_half_up,
    user_of,
)
from tests.state.producer_id_traces import Trace, traces
from tests.state.recorded import cases, vectors
from tests.state.test_producer_id_quota import Manager

VECTORS = "producer_ids.json"
RATES = (("last_event", "rate-4.1.0.jsonl.gz"), ("start_time", "rate-3.7.2.jsonl.gz"))
T0 = 1_767_621_600_000
LONG = 2**63 - 1
SECOND = {SAMPLES: 11, WINDOW_S: 1, "rate_unit": "second", "stats_window_ms": 1000}
random_traces = drawn(60)


def ids(values: list[dict[str, Any]]) -> list[str]:
    return [v["id"] for v in values]


def by_id(target: str) -> dict[str, dict[str, Any]]:
    return {v["id"]: v for v in vectors(VECTORS, target)}


def batch(pid: int, at_ms: int, user: str = "u1", **columns: Any) -> dict[str, Any]:
    return {
        "event_type": "produce_batch", "source_feed": "contract", "cluster": "c", "broker": "b1",
        "seq": None, "ts_mono_ns": at_ms * 1_000_000, "ts_wall_ms": at_ms,
        "principal": f"User:{user}", "client_id": "c1", "topic": "t", "partition": 0,
        "producer_id": pid, **columns,
    }


def other(kind: str, at_ms: int, **columns: Any) -> dict[str, Any]:
    return {
        "event_type": kind, "source_feed": "contract", "cluster": "c", "broker": "b1",
        "seq": None, "ts_mono_ns": at_ms * 1_000_000, "ts_wall_ms": at_ms, **columns,
    }


def quota(name: str, bound: float | None) -> str:
    limits = {} if bound is None else {"producer_ids_rate": bound}
    return json.dumps({"scope": "user", "name": name, "limits": limits})


def decisions(*args: Any, **kwargs: Any) -> list[Row]:
    return judge(*args, **kwargs)["producer_id_decisions"]


# -- Kafka's classes -------------------------------------------------------------------------


@pytest.mark.parametrize(("stat", "file"), RATES)
def test_recorded_rates(stat: str, file: str) -> None:
    for case in cases(file):
        s, by = Sensor(), Rules(
            case["samples"], case["window_ms"], case["bound"], "sampled_rate", stat
        )
        for i, (op, expected) in enumerate(zip(case["ops"], case["out"], strict=True)):
            if op[0] == "q":
                by.bound = op[1]
                continue
            if op[0] in ("r", "c"):
                s.record(op[1], op[-1], by)
            if op[0] == "r":
                continue
            violated, throttle_ms = s.violation(op[-1], by)
            rate, span = s.rate(op[-1], by)
            seen = [violated, rate, throttle_ms, min(throttle_ms, 1000)] if violated else [
                False, None, None, None
            ]
            for got, told in zip([*seen, rate, span], expected[:6], strict=True):
                assert told == "absent" or got == told, (case["id"], i, op)
            if len(expected) > 6:
                assert [(x.start, x.total) for x in s.samples] == [
                    (x[0], x[3]) for x in expected[6]
                ]


def test_recorded_buckets() -> None:
    for case in cases("bucket-4.1.0.jsonl.gz"):
        s, by = Sensor(), Rules(case["samples"], case["window_ms"], case["bound"])
        for i, (op, expected) in enumerate(zip(case["ops"], case["out"], strict=True)):
            if op[0] == "q":
                by.bound = op[1]
                continue
            if op[0] in ("r", "c"):
                s.record(op[1], op[-1], by)
            if op[0] == "r":
                continue
            violated, _ = s.violation(op[-1], by)
            tokens = s.tokens(op[-1], by)
            assert [violated, tokens if violated else None, tokens] == expected, (case["id"], i)


def test_recorded_requests_strict_and_permissive() -> None:
    for case in cases("quota-mutation-4.1.0.jsonl.gz"):
        quotas = Manager("token_bucket", case["samples"], case["window_s"] * 1000)
        sensors: dict[tuple[str, str], Sensor] = defaultdict(Sensor)
        for i, (op, expected) in enumerate(zip(case["ops"], case["out"], strict=True)):
            if op[0] == "q":
                quotas.set(*op[1:])
                continue
            if op[0] not in ("m", "r", "s", "p"):
                continue
            where, tags = (case["id"], i, op), quotas.tags(*op[1:3])
            s, bound = sensors[tags], quotas.bound(*op[1:3])
            by = Rules(case["samples"], case["window_s"] * 1000, float(bound))
            if op[0] == "m":
                assert s.rate(op[3], by)[0] == expected, where
            elif op[0] == "r":
                _, throttle_ms = s.charge(op[3], op[4], by, "strict")
                assert reported(throttle_ms, ["Q1"]) == expected[0], where
            else:
                answers = [
                    s.charge(value, op[4], by, "strict" if op[0] == "s" else "permissive")
                    for value in op[3]
                ]
                assert [
                    reported(throttle_ms, ["Q1"]) if verdict == "rejected" else "ok"
                    for verdict, throttle_ms in answers
                ] == expected[0], where


# -- vectors of the arithmetic ---------------------------------------------------------------


def close(params: dict[str, Any], value: float) -> Any:
    return pytest.approx(value, abs=params.get("tolerance", 0.0), rel=0.0)


@pytest.mark.parametrize("stat", ("last_event", "start_time"))
@pytest.mark.parametrize("vector", vectors(VECTORS, "sampled_rate"), ids=lambda v: v["id"])
def test_sampled_rate_vector(vector: dict[str, Any], stat: str) -> None:
    p, asked = vector["params"], vector["given"]
    s, by = Sensor(), Rules(p["samples"], p["sample_ms"], None, "sampled_rate", stat)
    for r in asked["records"]:
        s.record(r["value"], r["at_ms"], by)
    for read, expect in zip(asked["reads"], vector["expect"][stat], strict=True):
        rate, span = s.rate(read["at_ms"], by)
        assert (rate, span) == (close(p, expect["rate"]), expect["window_ms"])
        for bound in read["bounds"]:
            by.bound = bound
            assert s.violation(read["at_ms"], by)[1] == expect["throttle_ms"][str(bound)]


@pytest.mark.parametrize("stat", ("last_event", "start_time"))
@pytest.mark.parametrize("vector", vectors(VECTORS, "sampled_rate_read"), ids=lambda v: v["id"])
def test_sampled_rate_read_vector(vector: dict[str, Any], stat: str) -> None:
    p, asked = vector["params"], vector["given"]
    for reads in ("with_read_between", "without"):
        s, by = Sensor(), Rules(p["samples"], p["sample_ms"], None, "sampled_rate", stat)
        first, second = asked["records"]
        s.record(first["value"], first["at_ms"], by)
        if reads == "with_read_between":
            s.rate(asked["read_between_at_ms"], by)
        s.record(second["value"], second["at_ms"], by)
        expect = vector["expect"][reads][stat]
        assert s.rate(asked["read_at_ms"], by) == (close(p, expect["rate"]), expect["window_ms"])


@pytest.mark.parametrize("vector", vectors(VECTORS, "token_bucket"), ids=lambda v: v["id"])
def test_token_bucket_vector(vector: dict[str, Any]) -> None:
    p = vector["params"]
    s, by = Sensor(), Rules(p["samples"], p["sample_s"] * 1000, p["bound_per_s"])
    throttle_ms = decided = 0
    for step in vector["steps"]:
        now, expect = step["at_ms"], step["expect"]
        if step["op"] == "set_bound":
            by.bound = step["bound_per_s"]
        elif step["op"] == "tokens":
            assert s.tokens(now, by) == expect["tokens"]
        elif step["op"] == "wait":
            assert max(throttle_ms - (now - decided), 0) == expect["throttle_ms"]
        else:
            verdict, throttle_ms = s.charge(step["value"], now, by, p["enforcement"])
            decided = now
            assert {
                "outcome": "rejected" if verdict == "rejected" else "accepted",
                "throttle_ms": throttle_ms, "tokens": s.tokens(now, by),
            } == expect


@pytest.mark.parametrize("vector", vectors(VECTORS, "throttle_range"), ids=lambda v: v["id"])
def test_throttle_range_vector(vector: dict[str, Any]) -> None:
    throttle_ms = vector["given"]["throttle_ms_64bit"]
    assert {
        "[Q1]": reported(throttle_ms, ["Q1"]), "[]": reported(throttle_ms)
    } == vector["expect"]


def test_rounding() -> None:
    halves = {0.5: 1, -0.5: 0, 1.5: 2, -1.5: -1, 0.49999999999999994: 0, math.nan: 0}
    assert {x: round_half_up(x) for x in halves} == halves
    assert round_half_up(1e300) == LONG
    assert round_half_up(-math.inf) == -(2**63)


# -- vectors of the job ----------------------------------------------------------------------

LIFE_CYCLE = vectors(VECTORS, "filter_lifecycle")


def life_cycle_params(vector: dict[str, Any]) -> dict[str, Any]:
    p = vector["params"]
    return {WINDOW_S: p["window_s"]} | {
        name: p[name] for name in ("window_mode", "refresh_on_hit", "membership")
    }


@pytest.mark.parametrize("vector", [v for v in LIFE_CYCLE if "steps" in v], ids=lambda v: v["id"])
def test_filter_life_cycle_vector(vector: dict[str, Any]) -> None:
    users: dict[str, User] = {}
    records, new = [], []
    for step in vector["steps"]:
        at = step["at_s"] * 1000
        if step["op"] == "users":
            assert {"users": [n for n, u in users.items() if u.live_at(at)]} == step["expect"]
            continue
        name = step["user"]
        user = users.setdefault(name, User("c", "b1", name, life_cycle_params(vector)))
        record = batch(step["producer_id"], at, name)
        user.advance(at)
        got = {"verdict": user.take(record), "live_filters": len(user.live_at(at))}
        assert got == step["expect"], step
        records.append(record)
        if got["verdict"] == "new":
            new.append((name, step["producer_id"], at, got["live_filters"]))
    rows = decisions(records, life_cycle_params(vector))
    assert [
        (r["user"], r["producer_id"], r["ts_wall_ms"], r["live_filters"]) for r in rows
    ] == new


def test_a_producer_id_in_steady_use_is_counted_after_each_disposal() -> None:
    v = by_id("filter_lifecycle")["PQ3"]
    g = v["given"]
    records = [
        batch(g["producer_id"], at * 1000, g["user"])
        for at in range(g["from_s"], g["to_s"] + 1, g["every_s"])
    ]
    rows = decisions(records, life_cycle_params(v))
    assert {
        "counted_at_s": [r["ts_wall_ms"] // 1000 for r in rows], "count": len(rows)
    } == v["expect"]
    assert [r["recount"] for r in rows] == [False, True, True]
    assert [r["rule"] for r in rows] == [
        "unseen_within_bound", "recounted_after_disposal", "recounted_after_disposal"
    ]


@pytest.mark.parametrize("vector", vectors(VECTORS, "bound"), ids=lambda v: v["id"])
@pytest.mark.parametrize("configured", (True, False))
def test_bound_vector(vector: dict[str, Any], configured: bool) -> None:
    quotas = [
        quota(q["user"], q["producer_ids_rate"])
        for q in vector["params"]["quotas"] if "user" in q
    ]
    records = [
        batch(i, T0, g["user"], client_id=g["client_id"]) for i, g in enumerate(vector["given"])
    ]
    policies = [other("policy", T0, policy_json=q) for q in quotas]
    rows = decisions([*records, *policies], {}) if not configured else decisions(
        records, {}, quotas
    )
    assert [
        {"bound": r["bound"], "bound_source": r["bound_source"]}
        for r in sorted(rows, key=lambda r: r["producer_id"])
    ] == vector["expect"]


@pytest.mark.parametrize("vector", vectors(VECTORS, "burst"), ids=lambda v: v["id"])
def test_burst_vector(vector: dict[str, Any]) -> None:
    g = vector["given"]
    params = {SAMPLES: g["samples"], WINDOW_S: g["window_s"], "rate_unit": g["rate_unit"]}
    row, = decisions([batch(1, T0)], params, [quota("u1", g["producer_ids_rate"])])
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
        "quota_math": "sampled_rate", "enforcement": "permissive", "membership": "exact",
    }
    for bound, throttle_ms in ((10, 0), (5, 10_000)):
        row = decisions([batch(i, T0) for i in range(100)], rates, [quota("u1", bound)])[-1]
        assert (row["rate"], row["throttle_ms"], row["tokens"]) == (10.0, throttle_ms, None)
    times = [T0 + 1000 * i for i in range(10) for _ in range(400)] + [T0 + 10_500] * 2300
    rows = decisions([batch(i, t) for i, t in enumerate(times)], rates, [quota("u1", 500)])
    assert (rows[-1]["rate"], rows[-1]["throttle_ms"]) == (600.0, 2100)


# -- boundaries ------------------------------------------------------------------------------


def test_bound_zero() -> None:
    records = [batch(i, T0) for i in range(3)]
    zero = [quota("u1", 0)]
    for defects, most in (([], 2**31 - 1), (["Q1"], -1)):
        rows = decisions(records, SECOND | {"defects": defects}, zero)
        assert [r["verdict"] for r in rows] == ["counted", "rejected", "rejected"]
        assert [r["throttle_ms"] for r in rows] == [0, most, most]
        rows = decisions(
            records, SECOND | {"defects": defects, "enforcement": "permissive"}, zero
        )
        assert [r["verdict"] for r in rows] == ["throttled"] * 3
        assert [r["throttle_ms"] for r in rows] == [most] * 3


def test_moving_between_levels_keeps_the_history() -> None:
    records = [
        batch(1, T0), other("policy", T0 + 1, policy_json=quota("u1", 1)), batch(2, T0 + 2),
        other("policy", T0 + 3, policy_json=quota("u1", None)), batch(3, T0 + 4),
        other("policy", T0 + 5, policy_json=quota("<default>", -1)), batch(4, T0 + 6),
    ]
    rows = decisions(records, SECOND, [quota("<default>", 10)])
    assert [(r["bound"], r["bound_source"]) for r in rows] == [
        (10.0, "default_user"), (1.0, "user"), (10.0, "default_user"), (2.0**63, "none")
    ]
    assert [r["tokens"] for r in rows][:3] == [109.0, 10.0, 9.0 + 10 * 0.002]


def test_spellings_of_a_user() -> None:
    for principal, user in (
        ("User:alice", "alice"), ("alice", "alice"), ("User:a:b", "a:b"), ("User:", ""),
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
        [batch(1, T0 + 500), batch(1, T0 + 600), batch(-1, T0 + 9000)], params, [quota("u1", 2)],
        T0 + 20_000,
    )["producer_id_stats"]
    names = ("new_ids", "seen_batches", "live_filters", "rate", "utilisation", "state_bytes")
    assert [[r["window_start_ms"] - T0, *[r[n] for n in names]] for r in rows] == [
        [0, 1, 1, 1, 1 / 1.5, 1 / 1.5 / 2, 8], [1000, 0, 0, 0, 1 / 1.5, 1 / 1.5 / 2, 0]
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
        ([], [0]), ([everywhere], [0, 3000, 6000]), ([own], [0, 6000]),
        ([own, everywhere], [0, 6000]),
    ):
        rows = decisions(records, {}, configured)
        assert [r["ts_wall_ms"] - T0 for r in rows] == times
    changed = [*records, other("policy", T0 + 1, policy_json=everywhere)]
    assert [r["ts_wall_ms"] - T0 for r in decisions(changed, {})] == [0, 3000, 6000]


# -- random traces ---------------------------------------------------------------------------


def rows_of(trace: Trace, **params: Any) -> dict[str, list[Row]]:
    """All rows, with every window written that anything happened in."""
    until = trace.end_ms + 2 * trace.params["stats_window_ms"]
    return judge(trace.records, trace.params | params, trace.configured, until)


def row_key(row: Row) -> tuple[str, str, str]:
    return row["cluster"], row["broker"], row["user"]


def by_key(rows: list[Row]) -> dict[tuple[str, str, str], list[Row]]:
    found = defaultdict(list)
    for row in rows:
        found[row_key(row)].append(row)
    return found


def batches(trace: Trace) -> Iterator[dict[str, Any]]:
    for r in trace.records:
        if r["event_type"] == "produce_batch" and r["producer_id"] >= 0:
            yield r


@random_traces
@given(traces())
def test_counts_add_up(trace: Trace) -> None:
    rows = rows_of(trace)
    made, stats = by_key(rows["producer_id_decisions"]), by_key(rows["producer_id_stats"])
    came = Counter(key_of(r) for r in batches(trace))
    assert set(came) == set(made) == {k for k in stats if came[k]}
    w = trace.params["stats_window_ms"]
    for key, count in came.items():
        windows = stats[key]
        total = sum(r["new_ids"] + r["seen_batches"] + r["rejected"] for r in windows)
        assert total == count
        for window in windows:
            start, end = window["window_start_ms"], window["ts_wall_ms"]
            assert (start % w, end - start, window["window_ms"]) == (0, w, w)
            inside = [r for r in made[key] if start <= r["ts_wall_ms"] < end]
            counts = Counter(r["verdict"] for r in inside)
            assert window["new_ids"] == counts["counted"] + counts["throttled"]
            assert window["rejected"] == counts["rejected"]
            slowed = [r["throttle_ms"] for r in inside if r["verdict"] != "counted"]
            assert window["throttle_time_avg_ms"] == (
                sum(slowed) / len(slowed) if slowed else None
            )
    strict = trace.params["enforcement"] == "strict"
    for row in rows["producer_id_decisions"]:
        assert row["verdict"] != ("throttled" if strict else "rejected")
        if row["verdict"] == "counted":
            assert row["throttle_ms"] == 0
        elif not trace.params["defects"]:
            assert 0 <= row["throttle_ms"] < 2**31
    assigned = Counter(
        (user_of(r["principal"]), r["producer_id"]) for r in trace.records
        if r["event_type"] == "producer_id_assigned" and r["producer_id"] >= 0
    )
    unseen = Counter((r["user"], r["producer_id"]) for r in rows["producer_id_decisions"])
    owned = Counter((r["user"], r["producer_id"]) for r in rows["producer_id_owners"])
    assert owned == assigned + unseen


@random_traces
@given(traces())
def test_order_of_rows(trace: Trace) -> None:
    rows = rows_of(trace)
    for table in TABLES[:2]:
        for found in by_key(rows[table]).values():
            places = [(r["ts_wall_ms"], r["row_no"]) for r in found]
            assert places == sorted(set(places))
            for (before, _), (at, number) in zip([(None, 0), *places], places, strict=False):
                assert number == 0 or at == before


@random_traces
@given(traces())
def test_a_known_id_is_not_counted_within_its_retention(trace: Trace) -> None:
    w = trace.params[WINDOW_S] * 1000
    kept = w * 3 // 2 if trace.params["window_mode"] in "AC" else w
    starts = defaultdict(list)
    for r in trace.records:
        if r["event_type"] == "broker_started":
            starts[r["broker"]].append(r["ts_wall_ms"])
    for (_, broker, _), rows in by_key(rows_of(trace)["producer_id_decisions"]).items():
        held: dict[int, tuple[int, int]] = {}
        counted: dict[int, int] = {}
        for row in rows:
            pid, now = row["producer_id"], row["ts_wall_ms"]
            restarted = [t for t in starts[broker] if t <= now]
            if pid in held:
                since, until = held[pid]
                assert now >= until or any(t >= since for t in restarted)
            if trace.params["membership"] == "bloom":
                assert row["recount"] is None
            elif pid in counted and not any(t >= counted[pid] for t in restarted):
                recent = now - counted[pid] < trace.params[EXPIRATION_MS]
                assert row["recount"] == recent
            elif pid not in counted:
                assert row["recount"] is False
            if row["verdict"] != "rejected":
                held[pid] = now, row["filter_created_ms"] + kept
                counted[pid] = now
            if trace.params["window_mode"] != "L":
                most = {"A": 3, "B": 2, "C": 2}[trace.params["window_mode"]]
                assert row["live_filters"] <= most
            assert row["filter_created_ms"] is None or (
                now - kept < row["filter_created_ms"] <= now
            )


@random_traces
@given(traces())
def test_bounds_are_those_of_the_latest_policies(trace: Trace) -> None:
    for key in keys_of(trace.records):
        own: dict[str, float] = {}

        def put(text: str, own: dict[str, float] = own) -> None:
            document = json.loads(text)
            if document["scope"] == "user":
                own[document["name"]] = document["limits"].get("producer_ids_rate", -1)

        for text in trace.configured:
            put(text)
        expected = []
        for r in records_of(trace.records, key):
            if r["event_type"] == "policy":
                put(r["policy_json"])
            name = key[2] if key[2] != "<default>" else ""
            bound = next((own[n] for n in (name, "<default>") if own.get(n, -1) >= 0), None)
            if r["event_type"] == "produce_batch":
                expected.append((r["ts_wall_ms"], r["producer_id"], bound))
        rows = [r for r in rows_of(trace)["producer_id_decisions"] if row_key(r) == key]
        unlimited = LONG if trace.params["unlimited_default"] == "long" else 2**31 - 1
        for row in rows:
            shown = None if row["bound_source"] == "none" else row["bound"]
            allowed = [
                None if b is None else float(b) for t, p, b in expected
                if (t, p) == (row["ts_wall_ms"], row["producer_id"])
            ]
            assert shown in allowed
            assert row["bound_source"] != "none" or row["bound"] == float(unlimited)


@random_traces
@given(traces())
def test_arrival_and_other_keys_do_not_matter(trace: Trace) -> None:
    rows = rows_of(trace)
    shuffled = list(trace.records)
    random.Random(1).shuffle(shuffled)
    until = trace.end_ms + 2 * trace.params["stats_window_ms"]
    assert judge(shuffled, trace.params, trace.configured, until) == rows
    alone: dict[str, list[Row]] = {table: [] for table in TABLES}
    for key in keys_of(trace.records):
        mine = [r for r in shuffled if r["event_type"] not in OWN or key_of(r) == key]
        for table, found in judge(mine, trace.params, trace.configured, until).items():
            alone[table] += found
    assert alone == rows


@random_traces
@given(traces())
def test_a_filter_without_false_positives_decides_as_exact_sets_do(trace: Trace) -> None:
    large = {"bloom_items": 4000, "bloom_fpp": 1e-12}
    found = rows_of(trace, membership="bloom", **large)
    exact = rows_of(trace, membership="exact", **large)
    only = ("recount", "rule", "filter_fill", "estimated_fpp", "state_bytes")
    for table in TABLES:
        for a, b in zip(found[table], exact[table], strict=True):
            assert {k: v for k, v in a.items() if k not in only} == {
                k: v for k, v in b.items() if k not in only
            }
    # a false positive hides an id, it never makes one
    small = {(row_key(r), r["producer_id"]) for r in rows_of(trace)["producer_id_decisions"]}
    assert small <= {(row_key(r), r["producer_id"]) for r in exact["producer_id_decisions"]}


@random_traces
@given(traces())
def test_outputs_change_nothing(trace: Trace) -> None:
    finer = rows_of(trace, stats_window_ms=100)
    rows = rows_of(trace)
    for table in ("producer_id_decisions", "producer_id_owners"):
        assert rows[table] == finer[table]
    levels = ("rate", "tokens", "live_filters", "filter_fill", "state_bytes", "utilisation")
    fine = {(row_key(r), r["ts_wall_ms"]): r for r in finer["producer_id_stats"]}
    for row in rows["producer_id_stats"]:
        same = fine.get((row_key(row), row["ts_wall_ms"]))
        if same is not None:
            assert [row[c] for c in levels] == [same[c] for c in levels]


@random_traces
@given(traces(broker_keys=True))
def test_settings_in_force(trace: Trace) -> None:
    rows = rows_of(trace)
    assert sum(r["new_ids"] + r["rejected"] for r in rows["producer_id_stats"]) == len(
        rows["producer_id_decisions"]
    )
    shuffled = list(trace.records)
    random.Random(2).shuffle(shuffled)
    until = trace.end_ms + 2 * trace.params["stats_window_ms"]
    assert judge(shuffled, trace.params, trace.configured, until) == rows
    for key in keys_of(trace.records):
        user = User(*key, trace.params, trace.configured)
        play(user, records_of(trace.records, key), trace.end_ms)
        assert user.live_at(trace.end_ms + 15_000) == []
