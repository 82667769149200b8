"""The incidents: each limit breaks where and as often as the scenario says, and nowhere else."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from benchmarks.generator.scenario import load_scenario
from benchmarks.generator.trace import Trace, plan_trace
from tests.unit.bench.generator.model import (
    applied_records,
    connections_of,
    crowded_connection,
    dry_times,
    incidents,
    most_in_flight,
    parsed_lines,
    topic_of,
)

Records = list[dict[str, Any]]


def _episodes(times: list[float], apart_s: float = 1.0) -> int:
    """How many groups of times there are, a gap of `apart_s` between them."""
    return 1 + sum(b - a > apart_s for a, b in pairwise(times))


def _expected(trace: Trace) -> dict[tuple[str, str], int]:
    """By limiter: how often it runs dry."""
    expected: dict[tuple[str, str], int] = {}
    for spec in trace.scenario.incidents:
        if spec.name in ("noisy-neighbour", "burst", "shared-topic"):
            expected["topic", topic_of(trace, spec)] = spec.times
        elif spec.name == "policy-change":
            expected["topic", topic_of(trace, spec)] = int(spec.for_s / spec.every_s)
        elif spec.name == "resource-group":
            expected["resource_group", spec.group or ""] = spec.times
        elif spec.name == "broker-limit":
            expected["broker", trace.fleet.brokers[spec.broker]] = spec.times
    return expected


@pytest.mark.parametrize(
    ("scenario", "events", "seed"),
    [
        ("small", 20_000, 7),
        ("small", 60_000, 2),
        ("demo", 30_000, 1),
        ("demo", 120_000, 7),
    ],
)
def test_only_the_incidents_break_limits_as_often_as_planned(
    scenario: str, events: int, seed: int
) -> None:
    trace = plan_trace(load_scenario(scenario), events, seed)
    applied = applied_records(parsed_lines(trace.slices()))
    dry = dry_times(trace, applied)
    assert {key: _episodes(times) for key, times in dry.items()} == _expected(trace)
    crowded = {c: n for c, n in most_in_flight(applied).items() if n >= 1000}
    assert list(crowded) == [crowded_connection(trace)]
    quiet = trace.scenario.active_s
    assert max(times[-1] for times in dry.values()) < quiet - 2


def test_noisy_neighbour_shares_its_connection_with_the_planned_others(
    small: Trace, applied: Records
) -> None:
    (connection,) = connections_of(small, *incidents(small, "noisy-neighbour"))
    on_it = {
        r["producer_name"]
        for r in applied
        if r["event_type"] == "producer_created" and r["cnx_id"] == connection
    }
    assert len(on_it) == small.scenario.fleet.shared_topics


@pytest.mark.parametrize("seed", [1, 7])
def test_two_principals_share_a_topic_of_which_one_uses_up_the_limit(seed: int) -> None:
    trace = plan_trace(load_scenario("demo"), 60_000, seed)
    (shared,) = incidents(trace, "shared-topic")
    begin_s, topic = trace.scenario.start_ms / 1000 + shared.at_s, topic_of(trace, shared)
    end_s = begin_s + (shared.times - 1) * shared.every_s + shared.pause_s
    applied = applied_records(parsed_lines(trace.slices()))
    who = {r["cnx_id"]: r["principal"] for r in applied if r["event_type"] == "connection_opened"}
    used: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for r in applied:
        inside = begin_s <= r["ts_wall_ms"] / 1000 < end_s
        if (
            r["event_type"] == "publish"
            and inside
            and topic.endswith(r["topic"].removeprefix("persistent://"))
        ):
            used[who[r["cnx_id"]]] += r["num_messages"]
            times[who[r["cnx_id"]]] += 1
    own, other = (who[connection] for connection in connections_of(trace, shared))
    assert own != other
    assert times[own] == shared.times == 4
    assert used[other] > 50 * used[own] > 0


def test_nobody_publishes_on_a_paused_connection(small: Trace, applied: Records) -> None:
    start = small.scenario.start_ms
    texts = small.fleet.connections.names
    for connection, since, until in small.plan.holds:
        inside = [
            r
            for r in applied
            if r["event_type"] == "publish"
            and r["cnx_id"] in texts[connection]
            and start + since // 10**6 + 20 < r["ts_wall_ms"] < start + until // 10**6
        ]
        assert [r for r in inside if r["cnx_id"] != crowded_connection(small)] == []


def test_policies_change_by_topic_and_for_the_fleet_and_change_back(applied: Records) -> None:
    changes = [r for r in applied if r["event_type"] == "policy"]
    assert [(r["source_feed"], r["broker"], "ts_mono_ns" in r) for r in changes] == [
        ("contract", "broker-0", True),
        ("contract", "broker-0", True),
        ("pulsar_admin", "*", False),
        ("pulsar_admin", "*", False),
    ]


def test_quiet_end_is_a_trickle_from_every_broker(small: Trace, applied: Records) -> None:
    quiet_ms = small.scenario.start_ms + small.scenario.active_s * 1000
    beats = Counter(
        r["broker"] for r in applied if r["event_type"] == "publish" and r["ts_wall_ms"] >= quiet_ms
    )
    each = 2 * small.scenario.quiet_s
    assert beats == dict.fromkeys(small.fleet.brokers, each)
    last = {r["broker"]: r["ts_wall_ms"] for r in applied if r["broker"] != "*"}
    end_ms = small.scenario.start_ms + small.scenario.duration_s * 1000
    assert all(end_ms - at < 1500 for at in last.values())


def test_publishes_come_only_from_producers_that_are_there(applied: Records) -> None:
    there: set[tuple[str, int]] = set()
    for record in applied:
        key = record.get("cnx_id"), record.get("producer_id")
        if record["event_type"] == "producer_created":
            there.add(key)
        elif record["event_type"] == "producer_closed":
            there.remove(key)
        elif record["event_type"] == "publish":
            assert key in there, record
