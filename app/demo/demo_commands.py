"""The command `demo`. Each imports what it needs when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from app.command_line import app, preflight


@app.command()
def demo(
    out: Annotated[Path, Option(help="Folder to write to.")] = Path("weir-demo"),
    scenario: Annotated[
        str,
        Option(help="demo, a fleet with incidents, or real-pulsar, which a real broker wrote."),
    ] = "demo",
) -> int:
    """Process ten minutes of a fleet, or a run of a real broker, and print the findings."""
    from app.demo.recording import Recording

    Recording(scenario)
    if preflight():
        from app.demo.demo_folder import refuse

        refuse(out)
        return 0
    from app.demo.demo_command import demo as run_demo

    return run_demo(out, scenario)
