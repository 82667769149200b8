"""Commands that run the service, and keep its tables. Each imports what it needs when it runs."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from typer import Option

from app.command_line import HERE, Config, Jobs, Json, Warehouse, app, configured, preflight
from app.errors import UserError


@app.command()
def run(
    config: Config = None,
    available_now: Annotated[
        bool, Option("--available-now", help="Process the available data, then stop.")
    ] = False,
    drain: Annotated[
        bool,
        Option(
            "--drain",
            help="With --available-now: decide the newest records, too, as nothing follows.",
        ),
    ] = False,
    jobs: Jobs = None,
    warehouse: Warehouse = None,
    archive: Annotated[
        str | None,
        Option(
            "--from-archive",
            metavar="WAREHOUSE",
            help="Begin a new warehouse with the archive of another one, then read the source from where"
            " that ends.",
        ),
    ] = None,
    log_format: Annotated[
        Literal["text", "json"],
        Option(
            envvar="WEIR_LOG_FORMAT",
            show_envvar=False,
            help="Format of the log on standard error: text, or one JSON object a line.",
        ),
    ] = "text",
) -> int:
    """Run the service: archive the records and run the jobs, until stopped."""
    settings = configured(config, warehouse, reads=True)
    names = [job.strip() for job in jobs.split(",")] if jobs else None
    if drain and not available_now:
        raise UserError("--drain: a run without an end has no last record\nadd --available-now")
    if preflight():
        from app.engine.assignment import plan
        from app.jvm import POLLS_ALONE
        from app.run.preflight import refuse

        # The driver of a cluster sees other folders and networks than the machine of this line.
        (partial(refuse, archive=archive) if preflight() == HERE else plan)(settings, names)
        return 0 if settings.streamed else POLLS_ALONE
    from app.engine.policy_watch import Origin
    from app.run.service import run as run_service

    again = partial(configured, config, warehouse, reads=True)
    origin = Origin(config, again) if config else None
    return run_service(settings, available_now, names, log_format, origin, drain, archive)


@app.command()
def maintain(
    config: Config = None,
    warehouse: Warehouse = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Print what would be done, and change nothing.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Merge small files, remove old rows, files and logs; safe beside a run and readers."""
    from app.run.maintenance import maintain as run_maintain

    return run_maintain(configured(config, warehouse), dry_run, as_json)


@app.command()
def repair(
    config: Config = None,
    warehouse: Warehouse = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Print what would be removed, and change nothing.")
    ] = False,
) -> int:
    """Remove what a loss of power has left unfinished, if its batch is then processed again."""
    from app.run.repair_command import repair as run_repair

    return run_repair(configured(config, warehouse), dry_run)


@app.command()
def forget(
    config: Config = None,
    warehouse: Warehouse = None,
    principal: Annotated[
        list[str] | None, Option(help="Principal, such as User:etl or etl; may be repeated.")
    ] = None,
    client_id: Annotated[list[str] | None, Option(help="Client id.")] = None,
    producer: Annotated[list[str] | None, Option(help="Name of a producer.")] = None,
    consumer: Annotated[list[str] | None, Option(help="Name of a consumer.")] = None,
    subscription: Annotated[list[str] | None, Option(help="Subscription.")] = None,
    connection: Annotated[list[str] | None, Option(help="Client connection.")] = None,
    topic: Annotated[list[str] | None, Option(help="Topic, with all partitions.")] = None,
    now: Annotated[
        bool,
        Option(
            "--now", help="Remove the history that has the names as well; no run may be at work."
        ),
    ] = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Count rows and files, and change nothing.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Replace names of persons by pseudonyms, in every table; safe beside a run and readers."""
    from app.run.maintenance import forget as run_forget

    names = {
        "principal": principal,
        "client_id": client_id,
        "producer": producer,
        "consumer": consumer,
        "subscription": subscription,
        "connection": connection,
        "topic": topic,
    }
    return run_forget(
        configured(config, warehouse),
        {kind: texts for kind, texts in names.items() if texts},
        dry_run,
        now,
        as_json,
    )
