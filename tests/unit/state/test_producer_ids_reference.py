"""The reference of producer_ids: filters step by step, and what holds for every trace."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from hypothesis import given

from tests.reference.producer_ids import (
    EXPIRATION_MS,
    TABLES,
    WINDOW_S,
    Row,
    User,
    judge,
    key_of,
    keys_of,
    records_of,
    user_of,
)
from tests.reference.wall import play
from tests.support.effort import drawn
from tests.unit.state.producer_id_traces import Trace, traces

LONG = 2**63 - 1
random_traces = drawn(60)


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
            assert window["throttle_time_avg_ms"] == (sum(slowed) / len(slowed) if slowed else None)
    strict = trace.params["enforcement"] == "strict"
    for row in rows["producer_id_decisions"]:
        assert row["verdict"] != ("throttled" if strict else "rejected")
        if row["verdict"] == "counted":
            assert row["throttle_ms"] == 0
        elif not trace.params["defects"]:
            assert 0 <= row["throttle_ms"] < 2**31
    assigned = Counter(
        (user_of(r["principal"]), r["producer_id"])
        for r in trace.records
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
            name = key[2] if key[2] != "<default>" else "\\<default>"
            bound = next((own[n] for n in (name, "<default>") if own.get(n, -1) >= 0), None)
            if r["event_type"] == "produce_batch":
                expected.append((r["ts_wall_ms"], r["producer_id"], bound))
        rows = [r for r in rows_of(trace)["producer_id_decisions"] if row_key(r) == key]
        unlimited = LONG if trace.params["unlimited_default"] == "long" else 2**31 - 1
        for row in rows:
            shown = None if row["bound_source"] == "none" else row["bound"]
            allowed = [
                None if b is None else float(b)
                for t, p, b in expected
                if (t, p) == (row["ts_wall_ms"], row["producer_id"])
            ]
            assert shown in allowed
            assert row["bound_source"] != "none" or row["bound"] == float(unlimited)


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
    for key in keys_of(trace.records):
        user = User(*key, trace.params, trace.configured)
        play(user, records_of(trace.records, key), trace.end_ms)
        assert user.live_at(trace.end_ms + 15_000) == []
