"""The command `demo`: runs the pipeline on a generated or recorded trace and summarises the result."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.console import Console

from app.demo.demo_folder import prepare
from app.demo.demo_scenario import ChosenScenario
from app.demo.generator.generated_configuration import document
from app.demo.generator.scenario import load_scenario
from app.demo.generator.trace import Trace, plan_trace
from app.demo.generator.write import write_files, write_policies, write_yaml
from app.demo.recording import Recording, render
from app.terminal.amounts import duration
from app.terminal.program import PROGRAM

FILES_PER_BATCH = 10
"""Several micro-batches, as in a service, so that late records are quarantined."""
RECORDED_PER_BATCH = 4
CACHE_BYTES = 8 << 20
"""Of the caches of a trace that does not name a size."""
OWNERS = [
    {"namespace": "shop/orders", "team": "team-orders"},
    *({"tenant": name, "team": f"team-{name}"} for name in ("shop", "media", "bank")),
    {"principal": "etl-*", "team": "team-data"},
    {"principal": "pricing", "team": "team-pricing"},
]
"""Who owns the topics and users of the demo's fleet."""


def demo(out: Path, asked: ChosenScenario) -> int:
    """Bring a scenario's events below `out`, process them and print the findings."""
    from app.config.settings import load_settings
    from app.read.relations import Warehouse
    from app.show.report import printed, write_page
    from app.show.report.report_reader import ReportReader, ReportSpan

    console = Console(highlight=False)
    recording = Recording(asked.scenario) if asked.recorded else None
    config = (
        _generated(out, asked, console)
        if recording is None
        else (_recorded(out, asked, recording, console))
    )
    began = time.monotonic()
    _process(config)
    console.print(
        f"Processed in {time.monotonic() - began:.0f} s. What to do, most urgent first:\n",
        markup=False,
    )
    reader = ReportReader(
        Warehouse.of(load_settings(config).location, load_settings(config).owners), ReportSpan()
    )
    actions = printed.render(reader, console)
    if recording is not None:
        console.print()
        render(recording.compared(str(out / "warehouse")), console)
    write_page(load_settings(config), out / "report.html", configured=True)
    printed.render_next_steps(out, actions, console)
    return 0


def _generated(out: Path, asked: ChosenScenario, console: Console) -> Path:
    """The configuration of a generated trace."""
    trace = plan_trace(load_scenario(asked.scenario), asked.events, asked.seed)
    prepare(out, asked)
    written = write_files(trace, out / "events")
    config = write_config(trace, out)
    spec = trace.scenario
    console.print(
        f"{written.events:,} events: {spec.duration_s // 60} minutes of {spec.fleet.brokers} "
        f"brokers, {spec.fleet.topics} topics of {len(spec.fleet.tenants)} tenants{_kafka(trace)}.",
        markup=False,
        soft_wrap=True,
    )
    return config


def _recorded(out: Path, asked: ChosenScenario, recording: Recording, console: Console) -> Path:
    """The configuration of a recording."""
    console.print(
        f"A real broker made these events: {recording.broker} with Weir's plug-in and real "
        f"clients, recorded for {duration(recording.seconds * 10**9)}; "
        f"{recording.events:,} events.",
        markup=False,
        soft_wrap=True,
    )
    prepare(out, asked)
    return write_recorded(recording, out)


def _kafka(trace: Trace) -> str:
    kafka = trace.scenario.kafka
    if kafka is None:
        return ""
    clients = () if kafka.clients is None else kafka.clients.users
    return f"; {kafka.brokers} Kafka brokers with {len({*kafka.users, *clients})} users"


def write_config(trace: Trace, out: Path) -> Path:
    """Write the configuration of the demo's run on a generated trace."""
    write_policies(trace, out / "policies.yaml")
    return _keep(
        out,
        document(
            trace, _warehouse(out), _source(out, FILES_PER_BATCH), "policies.yaml", CACHE_BYTES
        )
        | {"owners": OWNERS},
    )


def write_recorded(recording: Recording, out: Path) -> Path:
    """Write the events of a recording, and the configuration of the demo's run on them."""
    recording.copy_to(out / "events")
    return _keep(
        out,
        {
            "warehouse": _warehouse(out),
            "source": _source(out, RECORDED_PER_BATCH),
            **recording.configuration(),
        },
    )


def _warehouse(out: Path) -> str:
    return str((out / "warehouse").absolute())


def _source(out: Path, files: int) -> dict[str, Any]:
    """The files of `out` as a source, with a number of files per micro-batch."""
    return {
        "format": "files",
        "path": str((out / "events").absolute()),
        "options": {"maxFilesPerTrigger": files},
    }


def _keep(out: Path, found: dict[str, Any]) -> Path:
    path = out / "weir.yaml"
    write_yaml(path, f"# What demo ran: {PROGRAM} run --config FILE --available-now --drain", found)
    return path


def _process(config: Path) -> None:
    """Run over the whole trace; a stopped run ends the demo."""
    from app.config.settings import load_settings
    from app.run.service import work

    if work(load_settings(config), available_now=True, interactive=True, drain=True):
        raise KeyboardInterrupt
