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
from tests.state.producer_id_trace import batch
from tests.state.producer_id_traces import Trace, traces
from tests.state.recorded import cases, vectors
from tests.state.test_producer_id_quota import Manager

VECTORS = "producer_ids.json"
RATES = (("last_event", "rate-4.1.0.jsonl.gz"), ("start_time", "rate-3.7.2.jsonl.gz"))
LONG = 2**63 - 1
random_traces = drawn(60)


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
    rows = judge(records, life_cycle_params(vector))["producer_id_decisions"]
    assert [
        (r["user"], r["producer_id"], r["ts_wall_ms"], r["live_filters"]) for r in rows
    ] == new


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
