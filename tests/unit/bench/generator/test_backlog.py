"""The backlog part of a trace: the checks find exactly what was planted."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from app.config.policies import problems
from benchmarks.generator.backlog_topic import EVICTS, MOVED_NS, Played
from benchmarks.generator.plan import MS, SECOND
from benchmarks.generator.trace import Trace
from tests.reference import backlog
from tests.support import planned as every
from tests.unit.bench.generator.model import applied_records, parsed_lines

Record = dict[str, Any]
EVENTS = 26_000
CASES = (("backlog", 7), ("backlog", 2), ("demo", 7), ("demo", 1))
MINUTE_MS = 60_000
EXCEEDED: dict[str, dict[tuple[str, str, str], range]] = {
    "backlog": {
        ("stops", "time", "producer_request_hold"): range(12, 20),
        ("refused", "size", "producer_exception"): range(9, 11),
        ("expires", "time", EVICTS): range(14, 20),
        ("phantom", "size", EVICTS): range(1, 13),
    },
    "demo": {("invoices", "time", EVICTS): range(7, 10)},
}
"""By topic, type of quota and policy: the minutes at which a check finds it exceeded. When `grows`
is, depends on the seed."""
EVICTED = {
    "backlog": [("grows", "size", "index", 1), ("expires", "time", "mirror", 1)],
    "demo": [("invoices", "time", "archive", 1)],
}
"""Topic, type of quota, subscription and its number."""
STOPPED = {
    "backlog": [("stops", 1, "reports", 290, 400), ("expires", 1, "mirror", 510, 300)],
    "demo": [("invoices", 1, "archive", 205, 200), ("ledger-lines", 0, "report", 150, 900)],
}
"""Topic, number and name of a subscription, when it stops and its time quota (s)."""


planned = partial(every.planned, events=EVENTS)
slices = partial(every.slices, events=EVENTS)


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


def evicted(trace: Trace, topic: str, number: int) -> dict[int, int]:
    """Entries that checks took from a subscription of a topic, by time (ms)."""
    marks = played(trace, topic).marks[number]
    moved = (marks.at_ns - MOVED_NS) % (MINUTE_MS * MS) == 0
    skipped = np.diff(marks.count, prepend=0)[moved]
    at_ms = trace.scenario.start_ms + marks.at_ns[moved] // MS
    return dict(zip((at_ms - MOVED_NS // MS).tolist(), skipped.tolist(), strict=True))


def played(trace: Trace, topic: str) -> Played:
    """What happens to one of the topics."""
    assert trace.backlog is not None
    return trace.backlog.played[list(trace.backlog.spec.topics).index(topic)]


def last_part(topic: str) -> str:
    """The name of a topic without its namespace."""
    return topic.rsplit("/", 1)[1]


@pytest.mark.parametrize(("scenario", "seed"), CASES)
def test_quotas_are_exceeded_where_planted_and_nowhere_else(scenario: str, seed: int) -> None:
    trace, found = planned(scenario, seed), defaultdict(list)
    for r in judged(scenario, seed)["backlog_checks"]:
        if r["exceeded_size"] or r["exceeded_time"]:
            kind = "size" if r["exceeded_size"] else "time"
            found[last_part(r["topic"]), kind, r["retention_policy"]].append(r["pass_ms"])
    planted = {
        key: [trace.scenario.start_ms + minute * MINUTE_MS for minute in minutes]
        for key, minutes in EXCEEDED[scenario].items()
    }
    if scenario == "backlog":
        planted["grows", "size", EVICTS] = list(evicted(trace, "grows", 1))
        assert len(planted["grows", "size", EVICTS]) > 4
    assert found == planted


@pytest.mark.parametrize(("scenario", "seed"), CASES)
def test_evictions_are_those_planted(scenario: str, seed: int) -> None:
    trace = planned(scenario, seed)
    found: dict[tuple[Any, ...], dict[int, int]] = defaultdict(dict)
    for r in judged(scenario, seed)["backlog_evictions"]:
        key = last_part(r["topic"]), r["quota_type"], r["subscription"], r["phantom"]
        found[key][r["ts_wall_ms"]] = r["entries_skipped"]
    planted = {
        (topic, kind, subscription, False): evicted(trace, topic, number)
        for topic, kind, subscription, number in EVICTED[scenario]
    }
    if scenario == "backlog":
        phantom = found.pop(("phantom", "size", "main", True))
        assert len(phantom) >= 11 and set(phantom.values()) == {0}
        assert not evicted(trace, "phantom", 0)
    assert set(found) == set(planted) != set()
    for key, entries in planted.items():
        both = set(entries) & set(found[key])
        assert len(both) >= len(entries) - 1 > 1
        for at in both:
            assert found[key][at] == pytest.approx(entries[at], rel=0.15, abs=6)


@pytest.mark.parametrize("seed", [7, 2])
def test_producers_are_refused_while_over_an_exception_or_hold_quota(seed: int) -> None:
    found = defaultdict(list)
    for r in judged("backlog", seed)["producer_refusals"]:
        found[r["topic"], r["error"], r["quota_type"]].append(r["ts_wall_ms"])
    trace = planned("backlog", seed)
    start_ms, refused = trace.scenario.start_ms, played(trace, "refused")
    assert {last_part(key[0]): key[1:] for key in found} == {
        "refused": ("ProducerBlockedQuotaExceededException", "size"),
        "stops": ("ProducerBlockedQuotaExceededError", "time"),
    }
    for key, times in found.items():
        own = played(trace, last_part(key[0]))
        assert times == [start_ms + at // MS for at in own.refused_ns]
    assert not played(trace, "stops").created_ns
    back, gone = start_ms + refused.created_ns[0] // MS, start_ms + refused.refused_ns[0] // MS
    entries = [
        r["ts_wall_ms"]
        for r in records("backlog", seed)
        if r["event_type"] == "entry_added" and r["topic"].endswith("/refused")
    ]
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
    start_ms = trace.scenario.start_ms
    for topic, number, subscription, stops_s, limit_s in STOPPED[scenario]:
        own = played(trace, topic)
        oldest_ns = int(own.at_ns[own.marks[number].until(stops_s * SECOND)])
        reaches = start_ms + (oldest_ns + limit_s * SECOND) // MS
        early = [
            (at, to)
            for (name, who), predicted in told.items()
            for at, to in predicted
            if (last_part(name), who) == (topic, subscription)
            and start_ms + 1000 * stops_s + 1.5 * MINUTE_MS < at < reaches
        ]
        assert len(early) >= 2
        assert all(abs(to - reaches) < 1500 for _, to in early)


def test_growth_to_the_size_quota_is_predicted() -> None:
    first = min(evicted(planned("backlog", 7), "grows", 1))
    told = [
        r
        for r in judged("backlog", 7)["backlog_subscriptions"]
        if (last_part(r["topic"]), r["subscription"]) == ("grows", "index") and r["pass_ms"] < first
    ]
    sizes = [r["backlog_bytes"] for r in told]
    assert sizes == sorted(sizes)
    for r in told[4:]:
        reaches = r["pass_ms"] + 1000 * r["time_to_quota_s"]
        assert abs(reaches - first) < 2.5 * MINUTE_MS


@pytest.mark.parametrize("seed", [7, 2])
def test_who_catches_up_stays_within_its_limits_and_drains(seed: int) -> None:
    trace = planned("backlog", seed)
    assert trace.scenario.backlog is not None
    loader = trace.scenario.backlog.topics["catches-up"].subscriptions["loader"]
    assert loader.returns_s is not None
    back = trace.scenario.start_ms + 1000 * loader.returns_s
    rows = [
        r
        for r in judged("backlog", seed)["backlog_subscriptions"]
        if (last_part(r["topic"]), r["subscription"]) == ("catches-up", "loader")
    ]
    by_pass = {r["pass_ms"]: r["backlog_entries"] for r in rows}
    peak = max(by_pass, key=lambda at: by_pass[at])
    assert back - MINUTE_MS < peak < back + MINUTE_MS
    assert max((n for at, n in by_pass.items() if at > back + 3 * MINUTE_MS), default=0) < 12
    assert by_pass[peak] > 50


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


def test_trace_has_its_share_of_records() -> None:
    trace = planned("backlog", 7)
    assert trace.backlog is not None
    assert trace.backlog.records == pytest.approx(trace.backlog.spec.share * EVENTS, rel=0.02)


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
