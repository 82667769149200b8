"""The command `generate`: a trace of a scenario, as files or into Kafka."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from textwrap import indent

from rich.console import Console
from rich.progress import Progress

from app.demo.generator.generated_configuration import TraceConfiguration
from app.demo.generator.scenario import load_scenario
from app.demo.generator.trace import ArrivalSlice, Trace, plan_trace
from app.demo.generator.write import WrittenTrace, write_files, write_kafka, write_policies
from app.errors import UserError
from app.terminal.program import PROGRAM

CACHE_BYTES = 8 << 20
"""Of the caches of a trace that does not name a size."""


def generate(
    scenario: str,
    events: int,
    seed: int,
    out: Path | None = None,
    kafka: str | None = None,
    config: Path | None = None,
) -> int:
    """Writes a trace to a folder, or to `SERVERS/TOPIC` of Kafka, and prints its contents.

    A trace in Kafka gets files of its policies and a configuration, `config`, which is printed.
    """
    beside = None if kafka is None else _beside(kafka, config)
    trace = plan_trace(load_scenario(scenario), events, seed)
    console = Console(stderr=True)
    began = time.monotonic()
    with Progress(console=console, transient=True) as progress:
        seconds = trace.scenario.duration_s
        task = progress.add_task("generating", total=seconds)

        def step(_: ArrivalSlice) -> None:
            progress.advance(task, trace.scenario.slice_s)

        if out is not None:
            written = write_files(trace, out / "events", step)
            write_policies(trace, out / "policies.yaml")
        else:
            servers, _, topic = (kafka or "").rpartition("/")
            written = write_kafka(trace, servers, topic, step)
    _report(trace, written, str(out or kafka), time.monotonic() - began)
    if beside is not None:
        text = beside.write(trace, CACHE_BYTES)
        print(
            f"\nThe configuration to use with it, in {beside.config} (its limits are in "
            f"{beside.policies}):\n\n{indent(text, '  ')}\n"
            f"  {PROGRAM} run --config {shlex.quote(str(beside.config))}"
        )
    return 0


def _beside(kafka: str, config: Path | None) -> TraceConfiguration:
    servers, _, topic = kafka.rpartition("/")
    if not servers or not topic:
        raise UserError(f"--kafka {kafka}: write SERVERS/TOPIC, like host:9092/events")
    return TraceConfiguration(config, servers, topic)


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
