"""The command `bakeoff`. Each imports what it needs when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from app.command_line import Config, Json, Warehouse, app, configured


@app.command("bakeoff")
def bakeoff(
    config: Config = None,
    warehouse: Warehouse = None,
    trace: Annotated[
        Path | None,
        Option(help="File or folder of JSON lines, in place of the archive."),
    ] = None,
    policies: Annotated[
        str | None, Option(help="Eviction policies, separated by commas. Default: all.")
    ] = None,
    sizes: Annotated[
        str | None,
        Option(
            help="Sizes of each broker's cache, such as 64MB,128MB. Default: around the working set."
        ),
    ] = None,
    vary: Annotated[
        list[str] | None, Option(help="Compare several values of a setting: NAME=VALUE,VALUE.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Compare the hit ratios of the cache eviction policies at several sizes, on a trace."""
    from app.jobs.entry_cache.whatif.command import BakeoffRequest
    from app.jobs.entry_cache.whatif.command import bakeoff as run_bakeoff

    keep = trace is None or config is not None or warehouse is not None
    asked = BakeoffRequest(trace, policies, sizes, vary or [])
    return run_bakeoff(configured(config, warehouse), asked, keep, as_json)
