"""The command `demo`: runs the pipeline on a recording and summarises the result."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console

from app.demo.demo_folder import prepare
from app.demo.recording import Recording, render


def demo(out: Path, scenario: str) -> int:
    """Bring a recording's events below `out`, process them and print the findings."""
    from app.config.settings import load_settings
    from app.read.relations import Warehouse
    from app.show.report import printed, write_page
    from app.show.report.report_reader import ReportReader, ReportSpan

    console = Console(highlight=False)
    recording = Recording(scenario)
    prepare(out, scenario)
    config = recording.copy_to(out)
    console.print(recording.says, markup=False, soft_wrap=True)
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
    compared = recording.compared(str(out / "warehouse"))
    if compared:
        console.print()
        render(compared, console)
    write_page(load_settings(config), out / "report.html", configured=True)
    printed.render_next_steps(out, actions, console)
    return 0


def _process(config: Path) -> None:
    """Run over the whole recording; a stopped run ends the demo."""
    from app.config.settings import load_settings
    from app.run.service import work

    if work(load_settings(config), available_now=True, interactive=True, drain=True):
        raise KeyboardInterrupt
