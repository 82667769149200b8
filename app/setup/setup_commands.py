"""Commands that check what is installed and configured. Each imports what it needs when it runs."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Option

from app.command_line import Config, Json, Warehouse, app, configured, duration, preflight


@app.command()
def validate(
    config: Config = None,
    warehouse: Warehouse = None,
    connect: Annotated[
        bool,
        Option(
            "--connect",
            help="Check paths, brokers, topics, sinks and permissions as well. Of several polled clusters"
            " one has to answer, as for a run.",
        ),
    ] = False,
    show: Annotated[bool, Option("--show", help="Print every key and its value.")] = False,
    as_json: Json = False,
) -> int:
    """Check a configuration: print what it says, or every mistake with its key."""
    from app.setup.validate import validate as run_validate

    return run_validate(config, as_json, connect, warehouse, show)


@app.command()
def doctor(config: Config = None, warehouse: Warehouse = None, as_json: Json = False) -> int:
    """Check versions, jars, Java, writable paths, and partitions against the manifest."""
    settings = configured(config, warehouse)
    if preflight():
        return 0
    from app.setup.doctor import doctor as run_doctor

    return run_doctor(settings, as_json)


@app.command()
def completion() -> int:
    """Print a script for bash and zsh that completes commands, options, questions, tables and jobs."""
    from app.setup.completion import script

    print(script(typer.main.get_command(app)), end="")
    return 0


@app.command()
def size(
    events_per_s: Annotated[float, Option(min=0, help="Events per second, on average.")],
    topics: Annotated[int, Option(min=1, help="Topics, each partition being one.")],
    principals: Annotated[int, Option(min=0, help="Users whose producer ids are counted.")] = 0,
    batch: Annotated[str, Option(help="Time between two micro-batches, such as 1s or 10s.")] = "1s",
    shadows: Annotated[
        int, Option(min=0, max=1000, help="Shadows: sets of policies beside the live ones.")
    ] = 0,
    prices: Annotated[
        tuple[float, float, float] | None,
        Option(
            metavar="WRITES READS STORED",
            help="Of an object store, for the cost of a month: 1,000 writes or lists, 1,000 reads, a GB"
            " a month.",
        ),
    ] = None,
    why: Annotated[bool, Option("--why", help="Print every need and its formula.")] = False,
    as_json: Json = False,
) -> int:
    """Compute the cores, memory and disk that a load needs, from measurements."""
    from app.setup.size import Load
    from app.setup.size import size as run_size

    load = Load(
        events_per_s, topics, principals, duration(batch, "--batch") / 1000, shadows, prices
    )
    return run_size(load, as_json, why)
