"""`python -m benchmarks generate`: a trace of a scenario, and what a run needs to process it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from app.errors import UserError
from benchmarks.generator.generated_configuration import write_config
from benchmarks.generator.scenario import load_scenario, names
from benchmarks.generator.trace import ArrivalSlice, Trace, plan_trace
from benchmarks.generator.write import WrittenTrace, write_files


def main(words: Sequence[str]) -> int:
    """Read the words of the command and run it; the exit code, 2 with a line on standard error for
    what its user can correct."""
    asked = parser().parse_args(words)
    try:
        generate(asked.scenario, asked.events, asked.seed, asked.out)
    except (UserError, OSError) as error:
        print(f"weir: {error}", file=sys.stderr)
        return 2
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    found = argparse.ArgumentParser(
        prog="python -m benchmarks generate",
        description="A realistic trace as JSON lines, with policies and a configuration.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    found.add_argument("--scenario", default="demo", help=", ".join(names()))
    found.add_argument("--events", type=int, default=1_000_000, help="about how many")
    found.add_argument("--seed", type=int, default=7, help="another one gives other events")
    found.add_argument("--out", type=Path, required=True, help="folder to write to")
    return found


def generate(scenario: str, events: int, seed: int, out: Path) -> None:
    """Writes a trace, its policies and its configuration to a folder, and prints its contents."""
    trace = plan_trace(load_scenario(scenario), events, seed)
    began = time.monotonic()
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("generating", total=trace.scenario.duration_s)

        def step(_: ArrivalSlice) -> None:
            progress.advance(task, trace.scenario.slice_s)

        written = write_files(trace, out / "events", step)
        write_config(trace, out)
    _report(trace, written, str(out), time.monotonic() - began)


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
