"""Commands that judge the archive again. Each imports what it needs when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from app.command_line import (
    HERE,
    Clusters,
    Config,
    From,
    Jobs,
    Json,
    OfWarehouse,
    Slice,
    Tenants,
    To,
    Topics,
    Warehouse,
    WarmUp,
    app,
    configured,
    duration,
    moment,
    policy_app,
    preflight,
)
from app.errors import UserError


@app.command()
def replay(
    out: Annotated[str, Option(help="Warehouse to write: a folder, or an address in a store.")],
    config: Config = None,
    warehouse: Warehouse = None,
    policy: Annotated[
        list[Path] | None,
        Option(
            help="Policies in place of the configured ones: a file, or a folder; may be repeated."
        ),
    ] = None,
    param: Annotated[
        list[str] | None,
        Option(help="A parameter in place of the configured one: job.key=value; may be repeated."),
    ] = None,
    start: From = None,
    end: To = None,
    warm_up: WarmUp = None,
    after: Annotated[
        str | None, Option(help="Begin where the replay in this folder ended, with its states.")
    ] = None,
    clusters: Clusters = None,
    tenants: Tenants = None,
    topics: Topics = None,
    jobs: Jobs = None,
    slice_records: Slice = 1_000_000,
    verify: Annotated[
        bool,
        Option("--verify", help="Compare with the live tables; exit code 1 if a table differs."),
    ] = False,
    drain: Annotated[
        bool, Option("--drain", help="Decide the newest records, too, as run --drain does.")
    ] = False,
) -> int:
    """Run the jobs over the archive again, under other policies or parameters."""
    from app.run.session import submitted_session
    from app.whatif.replay.choice import Choice
    from app.whatif.replay.replay_command import refuse
    from app.whatif.replay.replay_command import replay as run_replay
    from app.whatif.replay.replay_request import ReplayRequest, jobs_of, replaced_by, settings_of

    settings = settings_of(config, warehouse, policy or [], param or [])
    asked = ReplayRequest(
        out,
        jobs_of(settings, jobs),
        span(start, end),
        0 if warm_up is None else duration(warm_up, "--warm-up"),
        Choice(
            tuple(clusters or ()),
            tuple(tenants or ()),
            tuple(topics or ()),
            replaced_by(settings) if policy else {},
        ),
        after,
        slice_records,
        verify,
        bool(policy or param),
        drain=drain,
    )
    if preflight():
        if preflight() == HERE:
            refuse(settings, asked)
        return 0
    with submitted_session(settings, "weir-replay") as spark:
        return run_replay(settings, asked, spark)


@policy_app.command("test")
def policy_test(
    files: Annotated[list[Path], Argument(help="Files with cases.")], as_json: Json = False
) -> int:
    """Play traffic against policies and compare with what is expected; exit code 1 if a case fails."""
    from app.whatif.policy_test.cases import test_policies

    return test_policies(files, as_json)


@policy_app.command("diff")
def policy_diff(
    ctx: typer.Context,
    before: Annotated[
        Path,
        Argument(
            help="File or folder of policies, configuration, or warehouse: the limits in force."
        ),
    ],
    after: Annotated[Path, Argument(help="The same, to compare with.")],
    on: Annotated[
        str | None,
        Option(
            metavar="RANGE",
            help="Replay the archive under both over FROM/TO (times as in replay; "
            "either may be missing), or all, and compare the effects.",
        ),
    ] = None,
    config: Config = None,
    warehouse: Warehouse = None,
    warm_up: WarmUp = None,
    clusters: Clusters = None,
    tenants: Tenants = None,
    topics: Topics = None,
    jobs: Jobs = None,
    slice_records: Slice = 1_000_000,
    keep: Annotated[
        Path | None, Option(help="Folder to keep the two replayed warehouses in.")
    ] = None,
    out: Annotated[Path | None, Option(help="Page to write (HTML).")] = None,
    cluster: OfWarehouse = None,
    rows: Annotated[
        int | None,
        Option(
            min=1,
            help="Maximum number of tenants, topics, users and clients each. Default: 5, 20 with --json"
            " and --out.",
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Compare two sets of policies limit by limit; with --on also in their effects."""
    from app.show.policy import changes, diff, sides

    if on is None:
        _only_with_on(ctx)
        return diff(before, after, cluster, as_json)
    from app.run.session import submitted_session
    from app.whatif.effect.effect_command import PolicySide, Wanted, effect, range_of
    from app.whatif.replay.choice import Choice
    from app.whatif.replay.replay_request import jobs_of

    documents = sides(before, after, cluster)

    def side(name: str, path: Path, found: list[Any]) -> PolicySide:
        return PolicySide(
            name,
            path,
            configured(
                config, warehouse, policy_files=[], policies=[one.document for one in found]
            ),
        )

    first, second = side("before", before, documents[0]), side("after", after, documents[1])
    wanted = Wanted(
        range_of(on),
        0 if warm_up is None else duration(warm_up, "--warm-up"),
        () if jobs is None else jobs_of(first.settings, jobs),
        Choice(tuple(clusters or ()), tuple(tenants or ()), tuple(topics or ())),
        slice_records,
        keep,
        out,
        rows,
        as_json,
    )
    if preflight():
        return 0
    with submitted_session(first.settings, "weir-policy-diff") as spark:
        return effect(first, second, changes(*documents), wanted, spark)


def _only_with_on(ctx: typer.Context) -> None:
    """UserError for an option that says how effects are compared, where they are not."""
    for param in ctx.command.params:
        given = ctx.get_parameter_source(param.name or "")
        if (
            isinstance(param, typer.core.TyperOption)
            and param.name not in ("as_json", "cluster")
            and (given is not None and given.name == "COMMANDLINE")
        ):
            raise UserError(f"policy diff: {param.opts[0]} goes with --on RANGE")


def span(start: str | None, end: str | None) -> Any:
    """The event times of --from and --to of a command that reads the archive."""
    from app.whatif.replay.event_span import FIRST_MS, LAST_MS, EventSpan

    begin_ms, end_ms = moment(start, "--from"), moment(end, "--to")
    return EventSpan(
        FIRST_MS if begin_ms is None else begin_ms, LAST_MS if end_ms is None else end_ms
    )
