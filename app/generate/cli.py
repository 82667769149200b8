"""The command `generate`: a trace of a scenario, as files or into Kafka."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from app.errors import UserError
from app.generate.scenario import load_scenario
from app.generate.trace import Slice, Trace, plan_trace
from app.generate.write import Written, write_expected, write_files, write_kafka, write_policies


def generate(
    scenario: str, events: int, seed: int, out: Path | None = None, kafka: str | None = None
) -> int:
    """Writes a trace to a folder, or to `SERVERS/TOPIC` of Kafka, and says what is in it."""
    trace = plan_trace(load_scenario(scenario), events, seed)
    console = Console(stderr=True)
    began = time.monotonic()
    with Progress(console=console, transient=True) as progress:
        seconds = trace.scenario.duration_s
        task = progress.add_task("generating", total=seconds)

        def step(_: Slice) -> None:
            progress.advance(task, trace.scenario.slice_s)

        if out is not None:
            written = write_files(trace, out / "events", step)
            write_policies(trace, out / "policies.yaml")
            write_expected(trace, out / "expected.jsonl")
        else:
            servers, _, topic = (kafka or "").rpartition("/")
            if not servers or not topic:
                raise UserError(f"--kafka {kafka}: write SERVERS/TOPIC, like host:9092/events")
            written = write_kafka(trace, servers, topic, step)
    _report(trace, written, str(out or kafka), time.monotonic() - began)
    return 0


def _report(trace: Trace, written: Written, where: str, seconds: float) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{written.events:,} events, {written.bytes / 1e6:,.1f} MB, in {where} "
                  f"({seconds:.1f} s, {written.events / seconds:,.0f} events/s)", markup=False)
    if trace.incidents:
        console.print("incidents: " + ", ".join(i.name for i in trace.incidents), markup=False)
    if trace.cache is not None:
        kinds = ", ".join(f"{name} {n:,}" for name, n in trace.cache.planted.items() if n)
        console.print(f"entries and their reads: {kinds}", markup=False)
        if trace.cache.max_bytes is not None:
            console.print(f"a cache as large as in the published run, at this trace's rate: "
                          f"max_bytes {trace.cache.max_bytes}", markup=False)
    if trace.large is not None:
        fates = ", ".join(f"{name} {n}" for name, n in sorted(trace.large.planted.items()))
        console.print(f"large messages, by subscription: {fates}", markup=False)
    planted = ", ".join(f"{code} {n}" for code, n in sorted(written.planted.items()))
    console.print(f"planted mistakes: {planted}", markup=False)
