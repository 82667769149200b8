"""The command `generate`: a trace of a scenario, as files."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from app.demo.generator.scenario import load_scenario
from app.demo.generator.trace import ArrivalSlice, Trace, plan_trace
from app.demo.generator.write import WrittenTrace, write_files, write_policies


def generate(scenario: str, events: int, seed: int, out: Path) -> int:
    """Writes a trace and its policies to a folder, and prints its contents."""
    trace = plan_trace(load_scenario(scenario), events, seed)
    began = time.monotonic()
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("generating", total=trace.scenario.duration_s)

        def step(_: ArrivalSlice) -> None:
            progress.advance(task, trace.scenario.slice_s)

        written = write_files(trace, out / "events", step)
        write_policies(trace, out / "policies.yaml")
    _report(trace, written, str(out), time.monotonic() - began)
    return 0


def _report(trace: Trace, written: WrittenTrace, where: str, seconds: float) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"{written.events:,} events, {written.bytes / 1e6:,.1f} MB, in {where} "
        f"({seconds:.1f} s, {written.events / seconds:,.0f} events/s)",
        markup=False,
    )
    incidents = trace.scenario.incidents
    if incidents:
        console.print("incidents: " + ", ".join(i.name for i in incidents), markup=False)
    if trace.cache is not None:
        kinds = ", ".join(f"{name} {n:,}" for name, n in trace.cache.planted.items() if n)
        console.print(f"entries and their reads: {kinds}", markup=False)
        if trace.cache.max_bytes is not None:
            console.print(
                f"a cache as large as in the published run, at this trace's rate: "
                f"max_bytes {trace.cache.max_bytes}",
                markup=False,
            )
    if trace.large is not None:
        fates = ", ".join(f"{name} {n}" for name, n in sorted(trace.large.planted.items()))
        console.print(f"large messages, by subscription: {fates}", markup=False)
    planted = ", ".join(f"{code} {n}" for code, n in sorted(written.planted.items()))
    console.print(f"planted mistakes: {planted}", markup=False)
