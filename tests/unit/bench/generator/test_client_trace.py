"""The demo's clients of Kafka: the core throttles as the brokers of the trace did, and both incidents
are in its tables."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from functools import cache
from typing import Any

import pytest

from benchmarks.generator.client_trace import Quotas, Sensor
from benchmarks.generator.scenario import load_scenario
from benchmarks.generator.trace import Trace, plan_trace
from state.jobs import DECLARED
from tests.support import planned as every
from tests.unit.bench.generator.model import applied_records, parsed_lines
from tests.unit.state import client_quota_trace

Record = dict[str, Any]
EVENTS = 300_000
SEEDS = (1, 7)
SHARED, SCAN = "pricing-backfill", "offset-audit-1"
"""The clients that the incidents are about."""


def planned(seed: int, events: int = EVENTS) -> Trace:
    return every.planned("demo", seed, events)


@cache
def requests(seed: int, events: int = EVENTS) -> list[Record]:
    """Those of a trace in order, each once."""
    logged = [
        r
        for r in parsed_lines(planned(seed, events).slices(), b'"client_request"')
        if r["event_type"] == "client_request"
    ]
    return applied_records(logged)


@cache
def judged(seed: int, events: int = EVENTS) -> dict[str, list[Record]]:
    """The tables of the core under the policies of the trace."""
    trace = planned(seed, events)
    policies = [json.dumps(p) for p in trace.policies if p["scope"] == "user"]
    return client_quota_trace.play(
        [client_quota_trace.numbered(requests(seed, events))],
        policies=policies,
        until_ms=trace.scenario.start_ms + trace.scenario.duration_s * 1000,
    )


@pytest.mark.parametrize("events", [20_000, EVENTS])
@pytest.mark.parametrize("seed", SEEDS)
def test_core_throttles_every_request_as_its_broker_did(seed: int, events: int) -> None:
    found = judged(seed, events)["client_quota_verdicts"]
    assert len(found) == len(requests(seed, events))
    assert [r for r in found if r["throttle_ms"] != r["observed_throttle_ms"]] == []
    assert sum(r["throttle_ms"] > 0 for r in found) > 30


@pytest.mark.parametrize("seed", SEEDS)
def test_a_backfill_starves_the_clients_that_share_its_limit_and_no_other_user(seed: int) -> None:
    decisions = judged(seed)["client_quota_decisions"]
    assert {(r["user"], r["client"], r["bound_level"]) for r in decisions} == {
        ("pricing", "", "user")
    }
    bytes_, waits = Counter[str](), Counter[str]()
    for r in decisions:
        bytes_[r["client_id"]] += r["charged"]
        waits[r["client_id"]] += r["throttle_ms"]
    assert bytes_[SHARED] > 0.7 * bytes_.total()
    assert min(waits["pricing-live"], waits["pricing-history"]) > 100_000
    assert {r["broker"] for r in decisions} == {"demo-kafka-0", "demo-kafka-1"}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_client_without_a_limit_fills_the_threads_of_one_broker_and_another_waits(
    seed: int,
) -> None:
    threads: dict[tuple[str, int], float] = defaultdict(float)
    for r in judged(seed)["client_usage"]:
        if r["client_id"] == SCAN:
            threads[r["broker"], r["window_start_ms"]] += r["handler_time_ms"] / r["window_ms"]
    assert {broker for broker, _ in threads} == {"demo-kafka-1"}
    assert 7.5 < max(threads.values()) < 8.5
    assert {
        (r["bound_level"], r["quota_type"])
        for r in judged(seed)["client_quota_stats"]
        if r["user"] == "offset-audit"
    } == {("none", "request")}
    start = planned(seed).scenario.start_ms
    sent = Counter(
        (r["broker"], (r["ts_wall_ms"] - start) // 60_000)
        for r in requests(seed)
        if r["client_id"] == "storefront-web"
    )
    assert sent["demo-kafka-1", 7] < 0.6 * sent["demo-kafka-1", 5]
    assert sent["demo-kafka-0", 7] > 0.9 * sent["demo-kafka-0", 5]


@pytest.mark.parametrize("seed", SEEDS)
def test_one_client_is_near_its_limit_and_one_limit_idle(seed: int) -> None:
    used: dict[str, list[float]] = defaultdict(list)
    for r in judged(seed)["client_quota_stats"]:  # of a broker whose threads are free
        if r["broker"] == "demo-kafka-0" and r["quota_type"] in ("produce", "fetch"):
            used[r["user"]].append(r["utilisation"] or 0)
    assert 0.8 <= min(used["search-sink"]) <= max(used["search-sink"]) < 1
    assert max(used["ledger-export"]) < 0.01
    assert max(used["storefront"]) < 0.8


def test_requests_are_logged_by_their_brokers_and_end_before_the_quiet_time() -> None:
    trace, found = planned(7), requests(7)
    assert {r["source_feed"] for r in found} == {"kafka_request_log"}
    assert all("ts_mono_ns" not in r for r in found)
    end = trace.scenario.start_ms + trace.scenario.active_s * 1000
    assert max(r["ts_wall_ms"] for r in found) < end + 20_000
    assert "client_quotas" in trace.jobs
    assert [job for job in trace.jobs if not DECLARED[job].by_default] == ["client_quotas"]


def test_a_trace_without_clients_runs_the_jobs_of_every_run() -> None:
    trace = plan_trace(load_scenario("small"), 20_000, 7)
    assert trace.jobs == [name for name, job in DECLARED.items() if job.by_default]


def test_a_rate_is_taken_over_ten_seconds_at_least() -> None:
    """The worked example of docs/semantics/client_quotas.md."""
    quotas = Quotas({"a": {"producer_byte_rate": 100}})
    charged = [
        quotas.charge("a", "PRODUCE", n, 0, at) for at, n in ((0, 1000), (500, 50), (600, 100))
    ]
    assert charged == [0, 0, 900]


def test_a_sample_is_forgotten_eleven_seconds_after_its_last_record() -> None:
    sensor = Sensor()
    sensor.record(1000, 0)
    assert sensor.throttle_ms(100, 10_999) == 0
    assert len(sensor.samples) == 1
    assert sensor.throttle_ms(100, 11_000) == 0
    assert len(sensor.samples) == 0


def test_the_bytes_of_a_throttled_fetch_are_taken_back() -> None:
    quotas = Quotas({"a": {"consumer_byte_rate": 100}})
    assert [quotas.charge("a", "FETCH", 2000, 0, 0), quotas.charge("a", "FETCH", 900, 0, 0)] == [
        10_000,
        0,
    ]
