"""The demo's Kafka part and its large messages: the cores find what was planted, and nothing else."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from functools import partial
from typing import Any

import numpy as np
import pytest

from app.jobs.chunks.findings import large_message_finding
from benchmarks.generator.kafka_trace import running_total
from benchmarks.generator.scenario import load_scenario
from benchmarks.generator.trace import Trace, plan_trace
from tests.support import planned as every
from tests.support.found import found_in
from tests.support.given_up import given_up
from tests.unit.bench.generator.large_messages import assert_core_agrees, found_by_core
from tests.unit.bench.generator.model import applied_records, parsed_lines
from tests.unit.state import producer_id_trace

Record = dict[str, Any]
EVENTS = 60_000
SEEDS = (1, 7)
SAMPLES, WINDOW_S = 11, 3600
USER, BOUND, ACCEPTED = "etl-nightly", 5, 2 * (SAMPLES * 5 + 1)
"""The user of the storm; on each of two brokers a burst, and one id that overdraws it."""


arrived = partial(every.arrived, "demo", events=EVENTS)
slices = partial(every.slices, "demo", events=EVENTS)
planned = partial(every.planned, "demo", events=EVENTS)
changed = partial(every.changed, "demo")


def kafka_records(seed: int, kind: str | None = None) -> list[Record]:
    """Those of the Kafka cluster, of one kind or all, in order of time, each once."""
    return [
        r
        for r in applied_records(r for r in arrived(seed) if r["cluster"] == "demo-kafka")
        if kind in (None, r["event_type"])
    ]


def new_ids(seed: int) -> dict[bool, set[int]]:
    """Producer ids of the user of the storm, and those of the others."""
    found: dict[bool, set[int]] = {True: set(), False: set()}
    for r in kafka_records(seed, "produce_batch"):
        found[r["principal"] == f"User:{USER}"].add(r["producer_id"])
    return found


def decisions_of_core(trace: Trace, records: list[Record]) -> list[Record]:
    """producer_id_decisions under the default parameters and the trace's policies."""
    own = [r for r in records if r["cluster"] == "demo-kafka"]
    policies = [json.dumps(p) for p in trace.policies if p["scope"] == "user"]
    end = trace.scenario.start_ms + trace.scenario.duration_s * 1000
    rows = producer_id_trace.play(
        [producer_id_trace.numbered(own)], policies=policies, until_ms=end
    )
    return rows["producer_id_decisions"]


def verdicts_of_model(trace: Trace, batches: list[Record]) -> Counter[tuple[str, str]]:
    """By user and verdict: a plain token bucket per broker and user, a set in place of filters."""
    bounds = {
        p["name"]: p["limits"]["producer_ids_rate"]
        for p in trace.policies
        if p["scope"] == "user" and "producer_ids_rate" in p["limits"]
    }
    tokens: dict[tuple[str, str], tuple[float, int]] = {}
    seen: dict[tuple[str, str], set[int]] = defaultdict(set)
    found: Counter[tuple[str, str]] = Counter()
    for r in batches:
        user = r["principal"].removeprefix("User:")
        key, at = (r["broker"], user), r["ts_wall_ms"]
        if r["producer_id"] in seen[key]:
            continue
        bound = bounds.get(user, bounds["<default>"])
        left, last = tokens.get(key, (SAMPLES * bound, at))
        left = min(SAMPLES * bound, left + (at - last) / 1000 * bound / WINDOW_S)
        verdict = "rejected" if left < 0 else "counted"
        if verdict == "counted":
            seen[key].add(r["producer_id"])
        tokens[key] = left - (verdict == "counted"), at
        found[user, verdict] += 1
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_core_finds_the_storm_and_no_other_user_over_the_bound(seed: int) -> None:
    trace = planned(seed)
    rows = decisions_of_core(trace, arrived(seed))
    found = Counter((r["user"], r["verdict"]) for r in rows)
    assert found == verdicts_of_model(trace, kafka_records(seed, "produce_batch"))
    over = [r for r in rows if r["verdict"] != "counted"]
    assert {r["user"] for r in over} == {USER}
    assert found[USER, "counted"] == ACCEPTED
    assert found[USER, "rejected"] >= len(new_ids(seed)[True]) - ACCEPTED > 100
    assert {r["bound"] for r in over} == {BOUND}
    assert all(r["topic"].startswith(f"{USER}.") for r in over)
    assert trace.scenario.kafka is not None and trace.scenario.kafka.storm is not None
    storm, start_ms = trace.scenario.kafka.storm, trace.scenario.start_ms
    since_s = [(r["ts_wall_ms"] - start_ms) / 1000 - storm.at_s for r in over]
    assert 0 < min(since_s) < max(since_s) < storm.for_s
    assert new_ids(seed) == {
        who: {r["producer_id"] for r in rows if (r["user"] == USER) == who} for who in (True, False)
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_core_finds_the_lost_and_unfinished_messages_and_no_other(seed: int) -> None:
    assert_core_agrees(planned(seed), arrived(seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_summary_names_the_culprits(seed: int) -> None:
    trace = planned(seed)
    assert trace.large is not None
    (finding,) = found_in(producer_id_decisions=decisions_of_core(trace, arrived(seed)))
    storm = finding.sentence
    brought = len(new_ids(seed)[True])
    assert storm.startswith(f"User etl-nightly brought {brought} new producer ids in 4 min, ")
    assert storm.endswith("). No other user was over its bound.")
    rows = found_by_core(trace, arrived(seed))
    messages = rows["chunk_messages"]
    told = given_up(messages, rows["chunk_events"], rows["incomplete_messages"])
    large = large_message_finding(messages, *told)
    assert large is not None
    said = large.sentence
    planted = trace.large.planted
    total = sum(planted.values())
    whole = total - planted["never_finished"] - planted["lost_chunk"]
    assert said.startswith(f"Of {total} large messages {whole} arrived complete")
    assert f"; {planted['never_finished']} never got " in said
    assert "last chunk (producer demo-video-0-0), " in said
    assert said.endswith("given up because of a lost chunk (consumer archive-1-0).")


@pytest.mark.parametrize("events", [20_000, 300_000])
def test_kafka_and_large_messages_are_a_modest_share(events: int) -> None:
    trace = plan_trace(load_scenario("demo"), events, 3)
    assert trace.kafka is not None and trace.large is not None
    assert trace.kafka.records == pytest.approx(0.07 * events, rel=0.01)
    assert trace.large.records == pytest.approx(0.015 * events, rel=0.1, abs=100)
    kafka = sum(int((part.brokers > len(trace.fleet.brokers)).sum()) for part in trace.slices())
    assert kafka == pytest.approx(trace.kafka.records, rel=0.01)


def test_records_of_kafka_come_from_its_logs_with_a_wall_clock_only() -> None:
    feeds = {
        "producer_id_assigned": "kafka_request_log",
        "client_request": "kafka_request_log",
        "produce_batch": "kafka_dump_log",
    }
    own = kafka_records(7)
    assert {(r["event_type"], r["source_feed"]) for r in own} == set(feeds.items())
    assert not [r for r in own if "ts_mono_ns" in r or "ledger_id" in r]
    assert {r["broker"] for r in own} == {"demo-kafka-0", "demo-kafka-1"}
    for feed, broker in {(r["source_feed"], r["broker"]) for r in own}:
        numbers = [r["seq"] for r in own if (r["source_feed"], r["broker"]) == (feed, broker)]
        assert numbers == list(range(len(numbers)))


def test_lines_carry_the_number_of_their_broker() -> None:
    keys = planned(7).fleet.keys
    assert keys == [
        "broker-0",
        "broker-1",
        "broker-2",
        "broker-3",
        "*",
        "demo-kafka-0",
        "demo-kafka-1",
    ]
    for part in slices(7):
        for line, broker, bad in zip(part.lines(), part.brokers, part.malformed, strict=True):
            assert bad or json.loads(line)["broker"] == keys[broker]


def test_an_id_is_assigned_once_and_before_its_first_batch() -> None:
    assigned: dict[int, Record] = {}
    for r in kafka_records(7, "producer_id_assigned"):
        assert assigned.setdefault(r["producer_id"], r) is r
    used = set()
    for r in kafka_records(7, "produce_batch"):
        given = assigned[r["producer_id"]]
        assert given["ts_wall_ms"] < r["ts_wall_ms"]
        assert (given["principal"], given["client_id"]) == (r["principal"], r["client_id"])
        used.add(r["producer_id"])
    assert used == set(assigned)


def test_offsets_and_sequences_go_on_without_a_gap() -> None:
    offsets: dict[tuple[str, int], int] = defaultdict(int)
    sequences: dict[tuple[int, str, int], int] = defaultdict(int)
    leaders: dict[tuple[str, int], str] = {}
    for r in sorted(kafka_records(7, "produce_batch"), key=lambda r: (r["broker"], r["seq"])):
        place = r["topic"], r["partition"]
        assert leaders.setdefault(place, r["broker"]) == r["broker"]
        assert r["entry_id"] == offsets[place]
        assert r["sequence_id"] == sequences[r["producer_id"], *place]
        offsets[place] += r["num_messages"]
        sequences[r["producer_id"], *place] += r["num_messages"]
    assert len({topic for topic, _ in offsets}) > 20


def test_a_client_has_one_id_at_a_time_but_for_those_that_crash() -> None:
    came = {r["producer_id"]: r["ts_wall_ms"] for r in kafka_records(7, "producer_id_assigned")}
    newest: dict[str, int] = {}
    for r in kafka_records(7, "produce_batch"):
        client, assigned = r["client_id"], came[r["producer_id"]]
        if r["principal"] != "User:etl-nightly":
            assert assigned >= newest.get(client, assigned), r
            newest[client] = assigned
    assert len(newest) == 54


def test_large_messages_have_connections_of_their_own() -> None:
    trace = planned(7)
    own = {trace.fleet.connections.names[c][0] for c in trace.fleet.own_connections}
    assert len(own) == 2
    using = {
        r["cnx_id"]: r["topic"]
        for r in arrived(7)
        if r["event_type"] == "producer_created" and r["cnx_id"] in own
    }
    assert set(using) == own
    large = {
        r["cnx_id"] for r in arrived(7) if r["event_type"] == "publish" and "/large-" in r["topic"]
    }
    assert large == own
    assert not [
        r
        for r in arrived(7)
        if r["event_type"] == "publish" and r["cnx_id"] in own and "/large-" not in r["topic"]
    ]


def test_running_total_goes_on_between_calls() -> None:
    totals = np.zeros(3, dtype=np.int64)
    group, amount = np.array([2, 0, 2, 2]), np.array([5, 1, 7, 1])
    assert running_total(group, amount, totals).tolist() == [0, 0, 5, 12]
    assert running_total(group, amount, totals).tolist() == [13, 1, 18, 25]
    assert running_total(group[:0], amount[:0], totals).tolist() == []


def test_users_may_have_any_bound_and_a_trace_no_storm() -> None:
    users = {"alone": {"producers": 1, "producer_ids_rate": 0.5}}
    trace = plan_trace(changed("kafka", users=users, storm=None, clients=None), EVENTS, 7)
    assert [p for p in trace.policies if p["scope"] == "user"] == [
        {"scope": "user", "name": "<default>", "limits": {"producer_ids_rate": 5}},
        {"scope": "user", "name": "alone", "limits": {"producer_ids_rate": 0.5}},
    ]
    records = [r for r in parsed_lines(trace.slices()) if r["cluster"] == "demo-kafka"]
    assert len(records) == pytest.approx(0.07 * EVENTS, rel=0.02)
    assert len({r["producer_id"] for r in records}) == 1
