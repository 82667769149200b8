"""The core of rate_limits without Spark: events per second, and what each stage takes of it."""

from __future__ import annotations

import json
import time
from contextlib import nullcontext
from types import SimpleNamespace
from unittest.mock import patch

from app.engine.routing import Route
from benchmarks.columnar import blobs_of
from benchmarks.result import Result, middle
from benchmarks.stages import Stages
from benchmarks.stream import Bench
from benchmarks.trace import POLICY, START_MS
from state.engine import admission, mono
from state.engine.reach import Reach
from state.jobs import DECLARED
from state.rate_limits import broker, flow, rows
from state.rate_limits.operator import RateLimits
from state.rate_limits.shard import Brokers
from tests.unit.state.shipping import params_of

JOB = DECLARED["rate_limits"]
PARAMS = params_of(JOB.name)
SHARDS = 16
KERNEL = SimpleNamespace(**vars(flow))
"""The kernel as the broker calls it; what calls itself inside stays unwrapped and compiles."""
STAGES = {
    "read state": [(Brokers, "__init__"), (Brokers, "open")],
    "read blobs": [(mono, "read_blobs")],
    "join and pick records": [(admission, "after"), (admission, "take")],
    "order": [(admission.order, "order"), (admission.order, "runs"), (admission.order, "repeated")],
    "feed": [(broker.Broker, "feed")],
    "kernel": [(KERNEL, "run"), (KERNEL, "advance")],
    "rows": [(rows, "of")],
    "write state": [(Brokers, "write")],
    "everything else": [(RateLimits, "step")],
}


def run(bench: Bench) -> Result:
    """One core over all shards, batch by batch, as the operator calls it."""
    count, size = (3, 2_000) if bench.small else (9, 250_000)
    result = Result("core", (count - 1) * size, bench.small)
    stages = Stages()
    routes = {"rate_limits": Route(JOB.columns, JOB.key)}
    parts = bench.traffic().parts(count, size)
    job = RateLimits(PARAMS, [json.dumps(POLICY)])
    states: dict[int, bytes | None] = {}
    speeds: list[float] = []
    judged = out = 0
    for batch, blobs in enumerate(blobs_of(parts, routes, SHARDS, 50_000)):
        stream_ms = max(START_MS + batch * 5000 - 10_000, 0)
        watched = stages.watching(STAGES) if batch else nullcontext()
        with patch.object(broker, "flow", KERNEL), watched:
            began = time.perf_counter()
            for place, mine in blobs.items():
                step = job.step(states.get(place), mine, Reach(stream_ms))
                states[place] = step.state
                out += sum(t.num_rows for t in step.tables.values())
            if batch:
                speeds.append(size * 0.8 / (time.perf_counter() - began))
                judged += int(size * 0.8)
    value, spread = middle(speeds)
    result.add("core of rate_limits, one process", value, spread=spread)
    result.add("its kernel alone", judged / stages.seconds["kernel"])
    for name in STAGES:
        share = stages.seconds.get(name, 0.0) / judged * 1e9
        result.add(f"stage: {name}", share, "ns/event")
    result.add("rows out", out, "rows")
    result.add("state", sum(len(s or b"") for s in states.values()), "bytes")
    return result


def state_size(bench: Bench) -> Result:
    """Bytes of state per topic, at three numbers of topics."""
    result = Result("state", 0, bench.small)
    routes = {"rate_limits": Route(JOB.columns, JOB.key)}
    for topics in (1_000, 10_000) if bench.small else (1_000, 10_000, 100_000, 1_000_000):
        job = RateLimits(PARAMS, [json.dumps(POLICY)])
        states: dict[int, bytes | None] = {}
        size = 2_000 if bench.small else max(250_000, topics)
        traffic = bench.traffic(topics=topics, skew=0.0)
        seen: set[str] = set()
        for blobs in blobs_of(_noting(traffic.parts(4, size), seen), routes, SHARDS, size):
            for place, mine in blobs.items():
                states[place] = job.step(states.get(place), mine, Reach(0)).state
        total = sum(len(s or b"") for s in states.values())
        result.events += 4 * size
        result.add(
            f"state, {topics:,} topics",
            total / len(seen),
            "bytes per topic",
            note=f"{total:,} bytes for {len(seen):,} topics seen, {SHARDS} shards",
        )
    return result


def _noting(parts, seen):  # type: ignore[no-untyped-def]
    for part in parts:
        seen.update(part["topic"].unique().to_pylist())
        yield part
