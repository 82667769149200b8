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
        Option(
            help="demo, which is generated, or real-pulsar, which is recorded from a real broker."
        ),
    ] = "demo",
    seed: Annotated[
        int | None, Option(help="Seed of the generated events.", show_default="7")
    ] = None,
    events: Annotated[
        int | None, Option(min=1, help="Number of generated events.", show_default="300000")
    ] = None,
) -> int:
    """Process ten minutes of a generated fleet, or a recorded run, and print the findings."""
    from app.demo.demo_scenario import asked

    wanted = asked(scenario, events, seed)
    if preflight():
        from app.demo.demo_folder import refuse

        refuse(out, wanted)
        return 0
    from app.demo.demo_command import demo as run_demo

    return run_demo(out, wanted)


@app.command()
def generate(
    events: Annotated[int, Option(min=1, help="Number of events.")] = 1_000_000,
    seed: Annotated[int, Option(help="Seed.")] = 7,
    scenario: Annotated[str, Option(help="Scenario: the fleet and its incidents.")] = "demo",
    *,
    out: Annotated[Path, Option(help="Folder for JSON lines and the policies of the fleet.")],
) -> int:
    """Generate a realistic trace, as JSON lines."""
    from app.demo.generator.generate_command import generate as run_generate

    return run_generate(scenario, events, seed, out)
