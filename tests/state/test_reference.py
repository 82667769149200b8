"""The core and the reference, written apart from one specification, give the same rows."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings

from tests.reference.job import judge
from tests.state.trace import PARAMS, START_MS, play
from tests.state.traces import Trace, traces

TABLES = ("throttle_events", "topic_throttle_stats", "publish_verdicts")
CHECKED = settings(
    max_examples=150, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def sorted_rows(rows: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Rows by key, time and row number; every table present."""
    return {
        table: sorted(
            rows.get(table, []),
            key=lambda r: (
                r["cluster"], r["broker"], r["ts_wall_ms"] or 0, r["ts_mono_ns"], r["row_no"]
            ),
        )
        for table in (*TABLES, "quarantine")
    }


def assert_same(trace: Trace, got: dict[str, Any], expected: dict[str, Any]) -> None:
    got, expected = sorted_rows(got), sorted_rows(expected)
    for table in expected:
        for i, (mine, wanted) in enumerate(zip(got[table], expected[table], strict=False)):
            assert mine == wanted, (table, i)
        assert len(got[table]) == len(expected[table]), table


def compare(trace: Trace) -> None:
    params = {**PARAMS, **trace.params}
    drain = trace.end_ms - START_MS
    got = play([trace.records], trace.params, trace.configured, drain_ms=drain)
    expected = judge(trace.records, params, trace.configured, trace.end_ms)
    assert_same(trace, got, expected)


@CHECKED
@given(traces())
def test_one_broker(trace: Trace) -> None:
    compare(trace)
