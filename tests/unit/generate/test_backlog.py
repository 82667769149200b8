"""The backlog part of a trace: the checks find exactly what was planted."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
import yaml

from app.config.policies import problems
from app.errors import UserError
from app.generate.plan import Incident
from app.generate.scenario import SHIPPED, load_scenario
from app.generate.trace import Slice, Trace, plan_trace
from app.ingest.contract import parse
from state.jobs import JOBS
from tests.reference import backlog
from tests.unit.generate.model import applied_records, parsed_lines

Record = dict[str, Any]
EVENTS = 26_000
CASES = (("backlog", 7), ("backlog", 2), ("demo", 7), ("demo", 1))
MINUTE_MS = 60_000


@cache
def planned(scenario: str, seed: int) -> Trace:
    """A trace of moderate size."""
    return plan_trace(load_scenario(scenario), EVENTS, seed)


@cache
def slices(scenario: str, seed: int) -> tuple[Slice, ...]:
    """Its slices."""
    return tuple(planned(scenario, seed).slices())


@cache
def records(scenario: str, seed: int) -> list[Record]:
    """What the job reads of the backlog part, in order of time, each once."""
    trace = planned(scenario, seed)
    assert trace.backlog is not None
    names = set(trace.backlog.names)
    return [
        r
        for r in applied_records(parsed_lines(slices(scenario, seed)))
        if r["cluster"] == trace.scenario.cluster
        and (r["event_type"] in backlog.SHARED or r.get("topic") in names)
    ]


@cache
def judged(scenario: str, seed: int) -> dict[str, list[Record]]:
    """The reference's rows under the trace's policies."""
    trace = planned(scenario, seed)
    documents = [json.dumps(p) for p in trace.policies if p["scope"] != "user"]
    spec = trace.scenario
    return backlog.judge(
        records(scenario, seed), {}, documents, spec.start_ms + spec.duration_s * 1000
    )


def named(trace: Trace, name: str) -> list[Incident]:
    """Incidents of one name."""
    return [i for i in trace.incidents if i.name == name]


@pytest.mark.parametrize(("scenario", "seed"), CASES)
def test_quotas_are_exceeded_where_planted_and_nowhere_else(scenario: str, seed: int) -> None:
    trace, found = planned(scenario, seed), defaultdict(list)
    for r in judged(scenario, seed)["backlog_checks"]:
        if r["exceeded_size"] or r["exceeded_time"]:
            kind = "size" if r["exceeded_size"] else "time"
            found[r["topic"], kind, r["retention_policy"]].append(r["pass_ms"])
    planted = {
        (i.topics[0], i.expected["quota_type"], i.expected["policy"]): i.expected["passes_ms"]
        for i in named(trace, "quota-exceeded")
    }
    assert set(found) == set(planted) != set()
    for key, passes in planted.items():
        assert found[key] == passes


@pytest.mark.parametrize(("scenario", "seed"), CASES)
def test_evictions_are_those_planted(scenario: str, seed: int) -> None:
    trace = planned(scenario, seed)
    found: dict[tuple[Any, ...], dict[int, int]] = defaultdict(dict)
    for r in judged(scenario, seed)["backlog_evictions"]:
        key = r["topic"], r["quota_type"], r["subscription"], r["phantom"]
        found[key][r["ts_wall_ms"]] = r["entries_skipped"]
    planted = {
        (
            i.topics[0],
            i.expected["quota_type"],
            *i.expected["subscriptions"],
            i.name == "phantom-eviction",
        ): i.expected["entries"]
        for i in trace.incidents
        if i.name in ("backlog-evicted", "phantom-eviction")
    }
    assert set(found) == set(planted) != set()
    for key, entries in planted.items():
        both = set(entries) & set(found[key])
        assert len(both) >= len(entries) - 1
        for at in both:
            assert found[key][at] == pytest.approx(entries[at], rel=0.15, abs=6)


@pytest.mark.parametrize("seed", [7, 2])
def test_producers_are_refused_while_over_an_exception_or_hold_quota(seed: int) -> None:
    found = defaultdict(list)
    for r in judged("backlog", seed)["producer_refusals"]:
        found[r["topic"], r["error"], r["quota_type"]].append(r["ts_wall_ms"])
    refused = {
        i.topics[0].rsplit("/", 1)[1]: i
        for i in named(planned("backlog", seed), "producer-refused")
    }
    assert {key[0].rsplit("/", 1)[1]: key[1:] for key in found} == {
        "refused": ("ProducerBlockedQuotaExceededException", "size"),
        "stops": ("ProducerBlockedQuotaExceededError", "time"),
    }
    for key, times in found.items():
        assert times == refused[key[0].rsplit("/", 1)[1]].expected["refused_ms"]
    back = refused["refused"].expected["accepted_ms"]
    assert back is not None
    assert refused["stops"].expected["accepted_ms"] is None
    entries = [
        r["ts_wall_ms"]
        for r in records("backlog", seed)
        if r["event_type"] == "entry_added" and r["topic"].endswith("/refused")
    ]
    gone = refused["refused"].expected["refused_ms"][0]
    assert not [at for at in entries if gone <= at < back]
    assert [at for at in entries if at > back]


@pytest.mark.parametrize(("scenario", "seed"), CASES)
def test_time_quota_is_predicted_before_it_is_reached(scenario: str, seed: int) -> None:
    trace, told = planned(scenario, seed), defaultdict(list)
    for r in judged(scenario, seed)["backlog_subscriptions"]:
        if r["time_to_quota_s"]:
            told[r["topic"], r["subscription"]].append(
                (r["pass_ms"], r["pass_ms"] + 1000 * r["time_to_quota_s"])
            )
    stopped = [
        i
        for i in named(trace, "subscription-stopped")
        if i.expected["reaches_quota_ms"] is not None
        and i.topics[0].endswith(("/stops", "/expires", "/invoices", "/ledger-lines"))
    ]
    assert len(stopped) == 2
    for incident in stopped:
        reaches = incident.expected["reaches_quota_ms"]
        early = [
            (at, to)
            for at, to in told[incident.topics[0], incident.expected["subscription"]]
            if incident.from_ms + 1.5 * MINUTE_MS < at < reaches
        ]
        assert len(early) >= 2
        assert all(abs(to - reaches) < 1500 for _, to in early)


def test_growth_to_the_size_quota_is_predicted() -> None:
    trace = planned("backlog", 7)
    (grows,) = named(trace, "backlog-grows")
    first = next(i for i in named(trace, "quota-exceeded") if i.topics == grows.topics)
    told = [
        r
        for r in judged("backlog", 7)["backlog_subscriptions"]
        if (r["topic"], r["subscription"]) == (grows.topics[0], grows.expected["subscription"])
        and r["pass_ms"] < first.from_ms
    ]
    sizes = [r["backlog_bytes"] for r in told]
    assert sizes == sorted(sizes)
    for r in told[4:]:
        reaches = r["pass_ms"] + 1000 * r["time_to_quota_s"]
        assert abs(reaches - first.from_ms) < 2.5 * MINUTE_MS


@pytest.mark.parametrize("seed", [7, 2])
def test_who_catches_up_stays_within_its_limits_and_drains(seed: int) -> None:
    trace = planned("backlog", seed)
    own = next(
        i for i in named(trace, "subscription-catches-up") if i.topics[0].endswith("/catches-up")
    )
    rows = [
        r
        for r in judged("backlog", seed)["backlog_subscriptions"]
        if (r["topic"], r["subscription"]) == (own.topics[0], "loader")
    ]
    by_pass = {r["pass_ms"]: r["backlog_entries"] for r in rows}
    peak = max(by_pass, key=lambda at: by_pass[at])
    assert own.from_ms - MINUTE_MS < peak < own.from_ms + MINUTE_MS
    assert max((n for at, n in by_pass.items() if at > own.until_ms + MINUTE_MS), default=0) < 12
    assert by_pass[peak] > 50


@pytest.mark.parametrize(("scenario", "seed"), CASES)
def test_contract_finds_the_planted_mistakes_and_no_other(scenario: str, seed: int) -> None:
    for part in slices(scenario, seed):
        bad = parse(pa.array(part.lines(), pa.binary()), JOBS).bad
        assert bad["row"].to_pylist() == part.malformed.nonzero()[0].tolist()


def test_policies_are_valid_and_of_every_kind() -> None:
    policies = planned("backlog", 7).policies
    assert not [p for document in policies for p in problems(document)]
    quotas = [
        (p["scope"], kind, quota["policy"])
        for p in policies
        for kind, quota in p["limits"].get("backlog_quota", {}).items()
    ]
    assert {scope for scope, _, _ in quotas} == {"topic", "namespace"}
    assert {kind for _, kind, _ in quotas} == {"destination_storage", "message_age"}
    assert {policy for _, _, policy in quotas} == {
        "producer_request_hold",
        "producer_exception",
        "consumer_backlog_eviction",
    }


def test_trace_has_as_many_records_as_asked_for_and_the_same_each_time() -> None:
    trace = planned("backlog", 7)
    assert trace.backlog is not None
    own = slices("backlog", 7)
    assert sum(part.ends.size for part in own) == pytest.approx(EVENTS, rel=0.02)
    assert trace.backlog.records == pytest.approx(trace.backlog.spec.share * EVENTS, rel=0.02)
    again = plan_trace(load_scenario("backlog"), EVENTS, 7)
    assert [p.data.tobytes() for p in again.slices()] == [p.data.tobytes() for p in own]
    other = [p.data.tobytes() for p in planned("backlog", 2).slices()]
    assert other != [p.data.tobytes() for p in own]


def test_polls_tell_what_is_there_just_before_each_check() -> None:
    trace = planned("backlog", 7)
    entries: Counter[tuple[str, int]] = Counter()
    listed: dict[str, set[int]] = defaultdict(set)
    for r in records("backlog", 7):
        if r["event_type"] == "entry_added":
            assert r["entry_id"] == entries[r["topic"], r["ledger_id"]]
            entries[r["topic"], r["ledger_id"]] += 1
        elif r["source_feed"] == "pulsar_admin":
            assert "ts_mono_ns" not in r
            before = MINUTE_MS - r["ts_wall_ms"] % MINUTE_MS
            assert 1400 < before <= 1500
        if r["event_type"] == "ledger_state":
            assert r["ledger_entries"] == entries[r["topic"], r["ledger_id"]]
            listed[r["topic"]].add(r["ledger_id"])
        elif r["event_type"] == "ledger_deleted":
            listed[r["topic"]].remove(r["ledger_id"])
    assert trace.backlog is not None
    assert set(listed) == set(trace.backlog.names)
    assert max(map(len, listed.values())) < 22


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ({"subscriptions": {"a": {"returns_s": 5, "speed": 1}}}, "needs stops_s before it"),
        ({"subscriptions": {"a": {"stops_s": 5}}}, "needed with stops_s"),
        ({"subscriptions": {"a": {"speed": 5, "cumulative": True}}}, "only without speed"),
        (
            {"quota": {"policy": "consumer_backlog_eviction", "size_s": 1, "size_bytes": 1}},
            "one of them",
        ),
        ({"quota": {"policy": "shout", "time_s": 1}}, "policy"),
        ({"namespace": "ops/mirrors"}, "the same namespace of their own"),
    ],
)
def test_mistake_in_the_scenario_is_refused(
    topic: dict[str, Any], said: str, tmp_path: Any
) -> None:
    document = yaml.safe_load((SHIPPED / "backlog.yaml").read_text())
    document["backlog"]["topics"]["healthy"] |= topic
    path = tmp_path / "bad.yaml"
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(UserError) as refused:
        load_scenario(str(path))
    assert any(said in problem for problem in refused.value.problems), refused.value.problems
