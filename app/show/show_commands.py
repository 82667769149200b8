"""Commands that show what the tables say. Each imports what it needs when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from app.command_line import (
    AsOf,
    At,
    Broker,
    Cluster,
    Config,
    From,
    Json,
    Limit,
    OfWarehouse,
    Rules,
    To,
    Warehouse,
    Window,
    alerts_app,
    app,
    configured,
    duration,
    moment,
    policy_app,
)
from app.errors import UserError


@app.command()
def report(
    out: Annotated[Path | None, Option(help="File to write.")] = None,
    config: Config = None,
    warehouse: Warehouse = None,
    cluster: Cluster = None,
    start: From = None,
    end: To = None,
    as_of: AsOf = None,
    as_json: Json = False,
) -> int:
    """Write a report as one HTML page, without scripts or network access."""
    from app.show.report import report as run_report

    times = moment(start, "--from"), moment(end, "--to"), moment(as_of, "--as-of")
    return run_report(
        configured(config, warehouse), out, *times, as_json, config is not None, cluster
    )


@app.command()
def serve(
    config: Config = None,
    warehouse: Warehouse = None,
    listen: Annotated[str, Option(help="HOST:PORT to serve on.")] = "127.0.0.1:9465",
) -> int:
    """Serve what is wrong now as a page for a browser, until stopped."""
    from app.show.live import serve as run_serve

    return run_serve(configured(config, warehouse, metrics={"listen": listen}))


@app.command()
def quality(
    config: Config = None,
    warehouse: Warehouse = None,
    table: Annotated[list[str] | None, Option(help="Only this table; may be repeated.")] = None,
    again: Annotated[
        bool, Option("--again", help="Audit also what has not changed since its last audit.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Audit the committed tables, the rows of all clusters together, with Great Expectations; exit
    code 1 if a check fails."""
    from app.show.audit import quality as run_quality

    return run_quality(configured(config, warehouse), as_json, table or [], again)


@app.command()
def reconcile(
    config: Config = None,
    warehouse: Warehouse = None,
    cluster: Cluster = None,
    watch: Annotated[
        bool, Option("--watch", help="Compare at every interval, until stopped.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Compare the brokers' own numbers with the tables; exit code 1 if a number differs."""
    from app.show.reconcile import reconcile as run_reconcile

    return run_reconcile(configured(config, warehouse), as_json, watch, cluster)


@app.command()
def forecast(
    config: Config = None,
    warehouse: Warehouse = None,
    cluster: Cluster = None,
    at: Annotated[
        str | None,
        Option("--at", help="Only what was known then: ISO 8601, -10m or ms since the epoch."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Predict when limits are reached, with the error of past forecasts; stores the results."""
    from app.show.forecast import forecast as run_forecast

    return run_forecast(configured(config, warehouse), moment(at), as_json, cluster)


@app.command()
def metrics(
    config: Config = None,
    warehouse: Warehouse = None,
    listen: Annotated[
        str | None, Option(help="HOST:PORT to serve on.", show_default="127.0.0.1:9464")
    ] = None,
    refresh: Annotated[
        str | None,
        Option(help="Time between reads of the warehouse, such as 30s.", show_default="15s"),
    ] = None,
    idle: Annotated[
        str | None,
        Option(
            help="Time for which an entity is shown after its last breach, such as 2h.",
            show_default="1h",
        ),
    ] = None,
    top: Annotated[
        int | None, Option(help="Maximum number of entities of a kind.", show_default="100")
    ] = None,
    once: Annotated[bool, Option("--once", help="Print the metrics and stop.")] = False,
    as_json: Annotated[bool, Option("--json", help="With --once: as JSON.")] = False,
) -> int:
    """Serve the metrics of a warehouse for Prometheus, until stopped."""
    from app.show.metrics import metrics as run_metrics

    if as_json and not once:
        raise UserError("metrics: --json goes with --once")
    for option, text in (("--refresh", refresh), ("--idle", idle)):
        if text is not None:
            duration(text, option)
    given = {"listen": listen, "refresh_s": refresh, "idle_s": idle, "top": top}
    section = {key: value for key, value in given.items() if value is not None}
    return run_metrics(configured(config, warehouse, metrics=section), once, as_json)


@app.command("explain", no_args_is_help=True)
def explain_entity(
    kind: Annotated[
        str,
        Argument(help="topic, connection, principal, client, message, subscription or group."),
    ],
    name: Annotated[
        str,
        Argument(
            help="Name as in the tables; of a message the uuid that its chunks share, of a client its"
            " user."
        ),
    ],
    second: Annotated[
        str | None,
        Argument(
            metavar="SUBSCRIPTION|CLIENT",
            help="Of a subscription its name, after its topic; of a client its id, if not all clients"
            " of the user are meant.",
        ),
    ] = None,
    at: At = None,
    window: Window = None,
    limit: Limit = 50,
    cluster: Cluster = None,
    broker: Broker = None,
    as_of: AsOf = None,
    config: Config = None,
    warehouse: Warehouse = None,
    as_json: Json = False,
) -> int:
    """Explain the decisions around one moment, in words."""
    from app.show.explain import explain
    from app.show.explain.ask import Ask

    ask = Ask.about(kind, name, second, limit=limit, cluster=cluster, broker=broker)
    at_ms, as_of_ms = moment(at), moment(as_of, "--as-of")
    return explain(configured(config, warehouse), ask, at_ms, window, as_of_ms, as_json)


@alerts_app.command("check")
def alerts_check(
    config: Config = None,
    warehouse: Warehouse = None,
    cluster: Cluster = None,
    at: Annotated[
        str | None,
        Option(help="Evaluate at this event time: ISO 8601, -10m or ms since the epoch."),
    ] = None,
    rule: Rules = None,
    as_json: Json = False,
) -> int:
    """Evaluate the rules once, record and notify changes; exit code 1 while a rule fires."""
    from app.show.alerts import check

    return check(configured(config, warehouse), as_json, moment(at), rule or [], cluster)


@alerts_app.command("watch")
def alerts_watch(
    config: Config = None,
    warehouse: Warehouse = None,
    interval: Annotated[
        str | None, Option("--interval", help="Time between the starts of two rounds, such as 30s.")
    ] = None,
    rule: Rules = None,
    as_json: Json = False,
) -> int:
    """Evaluate the rules repeatedly, until SIGTERM or Ctrl-C."""
    from app.show.alerts import watch

    return watch(
        configured(config, warehouse),
        None if interval is None else duration(interval, "--interval"),
        as_json,
        rule or [],
    )


@alerts_app.command("rules")
def alerts_rules(config: Config = None, warehouse: Warehouse = None, as_json: Json = False) -> int:
    """List the rules: what each evaluates and when it fires."""
    from app.show.alerts import rules

    return rules(configured(config, warehouse), as_json)


@policy_app.command("check")
def policy_check(
    files: Annotated[
        list[Path], Argument(help="Files and folders of policies, or a configuration.")
    ],
    as_json: Json = False,
) -> int:
    """Check policy documents: mistakes, conflicts, and limits without effect; exit code 1 or 2."""
    from app.show.policy import check

    return check(files, as_json)


@policy_app.command("show")
def policy_show(
    name: Annotated[str, Argument(help="Topic, principal such as User:etl or etl, or client id.")],
    at: Annotated[
        str | None,
        Option(
            help="The moment: ISO 8601, -10m or ms since the epoch. Default: the newest record."
        ),
    ] = None,
    cluster: Cluster = None,
    config: Config = None,
    warehouse: Warehouse = None,
    as_json: Json = False,
) -> int:
    """Show the limits of a topic, principal or client id and where each comes from, level by level."""
    from app.show.policy import show

    return show(configured(config, warehouse), config, name, moment(at), cluster, as_json)


@policy_app.command("export")
def policy_export(
    files: Annotated[
        list[Path],
        Argument(
            help="Files and folders of policies, a configuration, or a warehouse: the limits in force."
        ),
    ],
    format_: Annotated[str, Option("--format", help="kafka-configs or pulsar-admin.")],
    out: Annotated[Path | None, Option(help="File to write. Default: standard output.")] = None,
    cluster: OfWarehouse = None,
) -> int:
    """Write policies as commands or manifests of the tools that apply limits; exit code 1 if some limit
    cannot be expressed."""
    from app.show.policy.export.command import export

    return export(files, format_, out, cluster)
