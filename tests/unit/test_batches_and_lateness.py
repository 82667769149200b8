"""What a cut between batches decides about late records (docs/semantics/time.md#lateness)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa
import pytest

from app.config.settings import Settings, load_settings
from app.engine.operators import limits_of, operators
from app.engine.routing import packer
from benchmarks.generator.scenario import load_scenario
from benchmarks.generator.trace import plan_trace
from state.engine.reach import Reach
from state.events import TOO_LATE
from state.jobs import JOBS

EVENTS, SMALLEST = 18_000, 250
Blobs = dict[tuple[str, int], list[bytes]]
Packed = list[tuple[Blobs, int]]
"""Blobs by job and shard of batches, and the latest wall time of each."""


@pytest.fixture(scope="module")
def settings() -> Settings:
    return load_settings(None, {"shards": 2})


@pytest.fixture(scope="module")
def packed(settings: Settings) -> Packed:
    """The demo's trace in its order of arrival, with thirty times as many late records."""
    scenario = load_scenario("demo")
    disorder = scenario.disorder.model_copy(update={"too_late": 0.01})
    trace = plan_trace(scenario.model_copy(update={"disorder": disorder}), EVENTS, 7)
    routes = {name: o.route for name, o in operators(settings, JOBS).items()}
    pack = packer(routes, settings.shard_count, limits_of(settings))
    found: Packed = []
    lines = [line for part in trace.slices() for line in part.lines()]
    for first in range(0, len(lines), SMALLEST):
        values = lines[first : first + SMALLEST]
        offsets = range(first, first + len(values))
        raw = pa.record_batch(
            {
                "value": pa.array(values, pa.binary()),
                "source_partition": pa.repeat(pa.scalar("0"), len(values)),
                "source_offset": pa.array(offsets, pa.int64()),
            }
        )
        (rows,) = pack(iter([raw]))
        blobs: Blobs = defaultdict(list)
        for row in rows.to_pylist():
            if row["job"] in JOBS:
                blobs[row["job"], row["shard"]].append(row["blob"])
        found.append((blobs, int(rows.column("ts")[0].as_py().timestamp() * 1000)))
    return found


def late(settings: Settings, packed: Packed, at_once: int) -> set[tuple[str, int]]:
    """Job and offset of every record that is too late, with so many batches made one."""
    jobs = operators(settings, JOBS)
    states: dict[tuple[str, int], bytes] = {}
    found: set[tuple[str, int]] = set()
    latest_ms = clock_ms = 0
    for first in range(0, len(packed), at_once):
        some = packed[first : first + at_once]
        for key in {*states, *(key for blobs, _ in some for key in blobs)}:
            mine: Sequence[bytes] = [blob for blobs, _ in some for blob in blobs.get(key, ())]
            answer = jobs[key[0]].job.step(states.get(key), mine, Reach(clock_ms))
            states[key] = answer.state
            refused = answer.tables.get("quarantine")
            for row in refused.to_pylist() if refused is not None else ():
                if row["reason_code"] == TOO_LATE:
                    found.add((key[0], row["source_offset"]))
        latest_ms = max(latest_ms, *(ms for _, ms in some))
        clock_ms = latest_ms - settings.idle_advance_ms
    return found


def test_a_larger_batch_refuses_a_part_of_what_its_smaller_batches_refuse(
    settings: Settings, packed: Packed
) -> None:
    by_size = [late(settings, packed, at_once) for at_once in (1, 3, 12, len(packed))]
    for smaller, larger in pairwise(by_size):
        assert larger < smaller
    assert by_size[-1] == set()
