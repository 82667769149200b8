"""The claim of PIP-385 in figures: what a shared connection costs topics within their limits.

The demo's fleet, with a noisy neighbour on a shared connection among its incidents, judged by the
core alone: as brokers are (`protocol=none`), and with the throttle command when the clients that
announced it, or all of them, confirm in time.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.engine.routing import Route
from benchmarks.blobs import parsed
from benchmarks.core import PARAMS, SHARDS
from benchmarks.generator.scenario import load_scenario
from benchmarks.generator.trace import plan_trace
from benchmarks.result import Result
from benchmarks.stream import Bench
from state.engine.reach import Reach
from state.jobs import DECLARED
from state.rate_limits.operator import RateLimits

JOB = DECLARED["rate_limits"]
PROTOCOLS: dict[str, dict[str, str]] = {
    "none": {},
    "pip385, clients that announced it": {"protocol": "pip385", "receipt_model": "supported"},
    "pip385, all clients": {"protocol": "pip385", "receipt_model": "all"},
}
NS = 1e9
ROUTE = Route(JOB.columns, JOB.key)


def run(bench: Bench) -> Result:
    """Paused time and counts by whose limit it was, and how long pauses are."""
    trace = plan_trace(load_scenario("demo"), 25_000 if bench.small else 300_000, 7)
    lines = [line for part in trace.slices() for line in part.lines()]
    result = Result("claim", len(lines), bench.small)
    blobs, stream_ms = parsed(lines, "rate_limits", ROUTE, SHARDS)
    policies = sorted(json.dumps(document, sort_keys=True) for document in trace.policies)
    for name, switches in PROTOCOLS.items():
        stats, events = _judge(blobs, stream_ms, policies, switches)
        culprit, shared, collateral = (
            _sum(stats, f"{w}_ns") / NS for w in ("culprit", "shared", "collateral")
        )
        every = culprit + shared + collateral
        result.add(f"{name}: collateral pause time", collateral, "s")
        result.add(
            f"{name}: its share of all paused time", 100 * collateral / every if every else 0, "%"
        )
        result.add(f"{name}: pause time for shared limits", shared, "s")
        result.add(f"{name}: limited_times", _sum(stats, "limited_times"), "times")
        result.add(f"{name}: culprit_times", _sum(stats, "culprit_times"), "times")
        if not switches:
            _pauses(result, events)
    result.ratio("pip385, all clients: collateral pause time", "none: collateral pause time")
    result.ratio("none: limited_times", "none: culprit_times")
    return result


def _pauses(result: Result, events: pa.Table) -> None:
    """Pauses that brokers schedule, against the "at most one second" of the proposal."""
    marks = events.filter((pc.field("rule") == "bucket_empty") & (pc.field("waiting") == 1))
    pauses = marks.column("pause_model_ns").to_numpy() / NS
    for name, value in (
        ("median", np.median(pauses)),
        ("95 of 100 up to", np.quantile(pauses, 0.95)),
        ("longest", pauses.max()),
    ):
        result.add(f"scheduled pause, {name}", round(float(value), 3), "s")
    result.add(
        "scheduled pauses above one second",
        100 * float((pauses > 1).mean()),
        "%",
        note="the proposal: at most one second",
    )


def _judge(
    blobs: dict[int, list[bytes]], stream_ms: int, policies: list[str], switches: dict[str, str]
) -> tuple[pa.Table, pa.Table]:
    """topic_throttle_stats and throttle_events of the whole trace."""
    job = RateLimits({**PARAMS, **switches}, policies)
    found: dict[str, list[pa.Table]] = {}
    for mine in blobs.values():
        first = job.step(None, mine, Reach(0))
        for step in (first, job.step(first.state, [], Reach(stream_ms))):
            for name, rows in step.tables.items():
                found.setdefault(name, []).append(rows)
    stats, events = (
        pa.concat_tables(found[name]) for name in ("topic_throttle_stats", "throttle_events")
    )
    return stats, events


def _sum(rows: pa.Table, column: str) -> Any:
    return pc.sum(rows.column(column)).as_py()
