"""The command `policy suggest client-quotas`. Each imports what it needs when it runs."""

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


@suggest_app.command("client-quotas")
def suggest_client_quotas(
    per: Annotated[
        str,
        Option(
            help="What gets a limit where no quota of the type was ever set: user, client or "
            "user-client. Elsewhere the entities are those of the quotas."
        ),
    ] = "user",
    types: Annotated[
        str, Option(help="Quota types: produce, fetch, request, controller_mutation.")
    ] = "produce,fetch",
    share: Annotated[
        float,
        Option(min=0, max=1, help="Share of a client's windows that may have a throttled request."),
    ] = 0.01,
    headroom: Headroom = 0.0,
    min_history: MinHistory = "2d",
    start: From = None,
    end: To = None,
    out: PolicyFile = None,
    every: Every = False,
    config: Config = None,
    warehouse: Warehouse = None,
    as_json: Json = False,
) -> int:
    """Suggest the smallest client quotas that throttle no more than a share of the windows."""
    from app.jobs.client_quotas.whatif.client_history import owner_of, types_of
    from app.jobs.client_quotas.whatif.client_limits import ClientHistoryRequest, suggest
    from app.terminal.moments import read_duration_ms
    from app.whatif.whatif_commands import span

    asked = ClientHistoryRequest(
        owner_of(per),
        types_of(types),
        share,
        headroom,
        read_duration_ms(min_history, f"--min-history {min_history}"),
        span(start, end),
    )
    return suggest(configured(config, warehouse), asked, out, every, as_json)
