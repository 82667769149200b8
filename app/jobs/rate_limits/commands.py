"""The command `policy suggest publish`. Each imports what it needs when it runs."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from app.command_line import (
    Config,
    Every,
    From,
    Headroom,
    Json,
    MinHistory,
    PolicyFile,
    To,
    Warehouse,
    configured,
    suggest_app,
)
from app.errors import UserError


@suggest_app.command("publish")
def suggest_publish(
    per: Annotated[str, Option(help="Limit each: topic, namespace or group.")] = "topic",
    rate: Annotated[str, Option(help="What is limited: both, or only messages or bytes.")] = "both",
    share: Annotated[
        float | None,
        Option(
            min=0, max=1, help="Share of the traffic that each limit may throttle. Default: 0.01."
        ),
    ] = None,
    percentile: Annotated[
        float | None,
        Option(
            min=0, max=100, help="The same as the percentage that is not throttled, such as 99."
        ),
    ] = None,
    headroom: Headroom = 0.0,
    min_publishes: Annotated[
        int, Option(min=1, help="Publishes that a name needs to get a limit.")
    ] = 100,
    min_history: MinHistory = "5m",
    start: From = None,
    end: To = None,
    out: PolicyFile = None,
    curve: Annotated[
        bool, Option("--curve", help="Print the effect of smaller and larger limits, too.")
    ] = False,
    verify: Annotated[
        bool,
        Option(
            "--verify",
            help="Replay the archive under the limits, each alone and both together, and "
            "under smaller ones.",
        ),
    ] = False,
    every: Every = False,
    config: Config = None,
    warehouse: Warehouse = None,
    as_json: Json = False,
) -> int:
    """Suggest the smallest publish limits that throttle no more than a share of the traffic."""
    from app.jobs.rate_limits.whatif.command import PublishRequest, suggest
    from app.jobs.rate_limits.whatif.history import required as rated
    from app.jobs.rate_limits.whatif.owners import required as owned
    from app.terminal.moments import read_duration_ms
    from app.whatif.whatif_commands import span

    if share is not None and percentile is not None:
        raise UserError("--percentile: is another way to say --share: leave out one of the two")
    if percentile is not None:
        share = (100 - percentile) / 100
    asked = PublishRequest(
        owned(per),
        rated(rate),
        0.01 if share is None else share,
        headroom,
        min_publishes,
        read_duration_ms(min_history, f"--min-history {min_history}"),
        span(start, end),
    )
    return suggest(configured(config, warehouse), asked, out, verify, curve, every, as_json)
