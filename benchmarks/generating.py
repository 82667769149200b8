"""How fast the demo's generator writes JSON lines to a folder."""

from __future__ import annotations

import shutil
import time

from benchmarks.generator.scenario import load_scenario
from benchmarks.generator.trace import plan_trace
from benchmarks.generator.write import write_files
from benchmarks.result import Result, middle
from benchmarks.stream import Bench


def run(bench: Bench) -> Result:
    """Plan and write the demo scenario, several times."""
    events = 25_000 if bench.small else 2_000_000
    result = Result("generator", events, bench.small)
    scenario = load_scenario("demo")
    next(plan_trace(scenario, events, 7).slices())  # compiles
    speeds, size = [], 0.0
    for number in range(1 if bench.small else 3):
        folder = bench.folder / f"generated-{number}"
        began = time.perf_counter()
        written = write_files(plan_trace(scenario, events, 7), folder)
        speeds.append(written.events / (time.perf_counter() - began))
        size = written.bytes / written.events
        shutil.rmtree(folder)
    value, spread = middle(speeds)
    result.add("generator to files", value, spread=spread)
    result.add("size of a record", size, "bytes")
    return result
