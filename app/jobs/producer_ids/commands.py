"""The command `policy suggest producer-ids`. Each imports what it needs when it runs."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from app.command_line import (
    Config,
    Every,
    Headroom,
    Json,
    PolicyFile,
    Warehouse,
    configured,
    suggest_app,
)


@suggest_app.command("producer-ids")
def suggest_producer_ids(
    share: Annotated[
        float,
        Option(
            min=0, max=1, help="Share of a user's windows that may have a throttled or rejected id."
        ),
    ] = 0.01,
    headroom: Headroom = 0.0,
    out: PolicyFile = None,
    every: Every = False,
    config: Config = None,
    warehouse: Warehouse = None,
    as_json: Json = False,
) -> int:
    """Suggest the producer_ids_rate that each user needs."""
    from app.jobs.producer_ids.whatif.suggest import advise

    return advise(configured(config, warehouse), share, every, as_json, headroom, out)
