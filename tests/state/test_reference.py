"""The core and the reference, written apart from one specification, give the same rows."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings

from tests.effort import examples
from tests.reference.job import judge
from tests.state.trace import PARAMS, START_MS, play
from tests.state.traces import Trace, traces

TABLES = (
    "throttle_events", "topic_throttle_stats", "limiter_stats", "producer_throttle",
    "publish_verdicts",
)
PHASES = [Phase.explicit, Phase.generate, *([Phase.shrink] if "WEIR_SHRINK" in os.environ else [])]
"""Shrinking a trace takes minutes: only when asked for."""
CHECKED = settings(
    max_examples=examples(150), deadline=None, derandomize=True, database=None, phases=PHASES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def sorted_rows(rows: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Rows by key, time and row number; every table present."""
    return {
        table: sorted(
            rows.get(table, []),
            key=lambda r: (
                r["cluster"], r["broker"], r["ts_wall_ms"] or 0, r.get("ts_mono_ns", 0),
                r.get("row_no", r.get("seq")) or 0,
            ),
        )
        for table in (*TABLES, "quarantine")
    }


def assert_same(got: dict[str, Any], expected: dict[str, Any]) -> None:
    """Whole rows of all tables; the first difference is shown, not all of them."""
    got, expected = sorted_rows(got), sorted_rows(expected)
    for table in expected:
        pairs = zip(got[table], expected[table], strict=False)
        for i, (mine, wanted) in enumerate(pairs):
            assert mine == wanted, (table, i)
        shorter, longer = sorted((got[table], expected[table]), key=len)
        assert longer[len(shorter) :] == [], table


def compare(trace: Trace) -> None:
    params = {**PARAMS, **trace.params}
    drain = trace.end_ms - START_MS
    got = play([trace.records], trace.params, trace.configured, drain_ms=drain)
    expected = judge(trace.records, params, trace.configured, trace.end_ms)
    assert_same(got, expected)


@CHECKED
@given(traces())
def test_one_broker(trace: Trace) -> None:
    compare(trace)


@CHECKED
@given(traces(brokers=("b1", "b2"), most=80))
def test_two_brokers_of_one_cluster(trace: Trace) -> None:
    compare(trace)


@CHECKED
@given(traces(switches=True))
def test_every_version_parameter(trace: Trace) -> None:
    compare(trace)


@CHECKED
@given(traces(brokers=("b1", "b2"), switches=True, most=120))
def test_every_version_parameter_on_two_brokers(trace: Trace) -> None:
    compare(trace)


@CHECKED
@given(traces(walls=False, starts=False, switches=True))
def test_without_wall_times(trace: Trace) -> None:
    """Windows lie on the monotonic clock; only a later record moves it."""
    bare = [{**r, "ts_wall_ms": None} for r in trace.records if r["event_type"] != "policy"]
    if not bare:
        return
    end = max(r["ts_mono_ns"] for r in bare) + 60_000_000_000
    lateness_ns = PARAMS["allowed_lateness_ms"] * 1_000_000
    closing = {
        **bare[0], "event_type": "reads_resumed", "cnx_id": "nobody", "ts_mono_ns": end,
        "seq": 10_000,
    }
    got = play([[*bare, closing]], trace.params, trace.configured)
    expected = judge(
        bare, {**PARAMS, **trace.params}, trace.configured, until_ns=end - lateness_ns
    )
    assert_same(got, expected)
