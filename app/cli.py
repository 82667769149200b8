"""The commands. Each imports what it needs when it runs: those without Spark start at once."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option, Typer

from app import __version__
from app.errors import CheckFound, UserError, not_installed, reason, refusal
from app.run.jvm_watch import ending_with_jvm
from app.terminal import log
from app.terminal.interrupt import Terminated, stoppable
from app.terminal.printable import say
from app.terminal.program import PROGRAM
from app.terminal.secrets import without_secrets


class Commands(typer.core.TyperGroup):
    """Commands whose summaries are listed whole, where Click would cut them off."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, command.get_short_help_str(limit=1000))
                    for name, command in commands
                    if command is not None and not command.hidden
                ]
            )


app = Typer(
    cls=Commands,
    name="weir",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich pads its panels with blanks, also in a pipe
    help="Quota governance for message streams: breaches, their causes and the affected topics.",
    epilog="--prepare fetches the jars and compiles the cores. Before demo, run and doctor go "
    "options of spark-submit, with --master before replay and policy diff, too; --dry-run before "
    "a command prints the line that would run.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
alerts_app = Typer(
    cls=Commands, no_args_is_help=True, help="Evaluate the alert rules on the tables."
)
app.add_typer(alerts_app, name="alerts")
policy_app = Typer(
    cls=Commands, no_args_is_help=True, help="Check, show, compare, suggest and export policies."
)
app.add_typer(policy_app, name="policy")
suggest_app = Typer(cls=Commands, no_args_is_help=True, help="Suggest limits from the archive.")
policy_app.add_typer(suggest_app, name="suggest")

HERE = "here"

Config = Annotated[Path | None, Option("--config", help="Configuration file (YAML).")]
Warehouse = Annotated[
    str | None, Option("--warehouse", help="Warehouse, in place of the configured one.")
]
Rules = Annotated[
    list[str] | None, Option("--rule", help="Only the rule of this name; may be repeated.")
]
Json = Annotated[bool, Option("--json", help="Answer as JSON.")]
At = Annotated[
    str | None,
    Option(
        "--at",
        help="The moment: ISO 8601, -10m or ms since the epoch. Default: the newest decision.",
    ),
]
Window = Annotated[
    str | None,
    Option("--window", help="Time to either side of the moment, such as 500ms, 10s or 5m."),
]
Limit = Annotated[
    int, Option("--limit", min=1, help="Maximum number of sentences; the nearest ones are kept.")
]
Cluster = Annotated[str | None, Option("--cluster", help="Only this cluster.")]
OfWarehouse = Annotated[
    str | None, Option("--cluster", help="Cluster whose limits in force a warehouse stands for.")
]
Broker = Annotated[str | None, Option("--broker", help="Only this broker.")]
Jobs = Annotated[str | None, Option("--jobs", help="Only these jobs, separated by commas.")]
Clusters = Annotated[
    list[str] | None, Option("--clusters", help="Only these clusters (*, ?); may be repeated.")
]
Tenants = Annotated[list[str] | None, Option("--tenants", help="Only topics of these tenants.")]
Topics = Annotated[list[str] | None, Option("--topics", help="Only these topics.")]
Slice = Annotated[int, Option("--slice", min=1, help="Records that are judged at a time.")]
From = Annotated[
    str | None, Option("--from", help="From this event time: ISO 8601, -10m or ms since the epoch.")
]
To = Annotated[str | None, Option("--to", help="Before this event time.")]
WarmUp = Annotated[
    str | None,
    Option(help="Time before the range whose records are judged and whose rows are left out."),
]
Every = Annotated[bool, Option("--all", help="Every row, not the first twenty.")]
AsOf = Annotated[
    str | None,
    Option(help="Read the tables as of this time: ISO 8601, -10m or ms since the epoch."),
]

Headroom = Annotated[
    float,
    Option(min=0, max=1000, help="Share of the smallest limit that is added to it, such as 0.2."),
]
MinHistory = Annotated[
    str, Option(help="Time that a name needs between its first use and its last to get a limit.")
]
PolicyFile = Annotated[
    Path | None, Option("--out", help="File to write the limits to, as policies.")
]

LEAST_MEMORY = 64_000_000
"""Bytes below which a statement cannot begin."""


def _answers(arguments: list[str]) -> bool:
    """Whether a command line answers and ends, so that Ctrl-C ends it immediately; a service ends
    what it has begun."""
    words = [word for word in arguments if not word.startswith("-")][:2]
    command = words[0] if words else "run"
    return not (
        command == "run"
        or words == ["alerts", "watch"]
        or (command == "metrics" and "--once" not in arguments)
        or (command == "reconcile" and "--watch" in arguments)
    )


def _settings(
    config: Path | None, warehouse: str | None = None, *, reads: bool = False, **overrides: Any
) -> Any:
    from app.config.settings import load_settings

    if warehouse:
        overrides["warehouse"] = warehouse
    return load_settings(config, overrides, reads=reads)


def _answer_of(command: str) -> Callable[..., int]:
    """What answers a command that one job has."""
    from app.jobs import parts

    answer: Callable[..., int]
    (answer,) = (part.answer for part in parts("whatif").values() if command == part.COMMAND)
    return answer


def _preflight() -> str | None:
    """Where the command will run, while spark-submit.sh only checks its input before Spark starts:
    `here` or `elsewhere`; None when it is to do its work."""
    return os.environ.get("WEIR_PREFLIGHT") or None


def _version(wanted: bool) -> None:
    if wanted:
        print(f"weir {__version__}")
        raise typer.Exit


@app.callback()
def _every_command(
    debug: Annotated[bool, Option("--debug", help="Show stack traces.")] = False,
    version: Annotated[
        bool, Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options before the command."""


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
    if _preflight():
        from app.demo.demo_folder import refuse

        refuse(out)
        return 0
    from app.demo.demo_command import demo as run_demo

    return run_demo(out, scenario)


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
    settings = _settings(config, warehouse, reads=True)
    names = [job.strip() for job in jobs.split(",")] if jobs else None
    if drain and not available_now:
        raise UserError("--drain: a run without an end has no last record\nadd --available-now")
    if _preflight():
        from app.engine.assignment import plan
        from app.jvm import POLLS_ALONE
        from app.run.preflight import refuse

        # The driver of a cluster sees other folders and networks than the machine of this line.
        (partial(refuse, archive=archive) if _preflight() == HERE else plan)(settings, names)
        return 0 if settings.streamed else POLLS_ALONE
    from app.engine.policy_watch import Origin
    from app.run.service import run as run_service

    again = partial(_settings, config, warehouse, reads=True)
    origin = Origin(config, again) if config else None
    return run_service(settings, available_now, names, log_format, origin, drain, archive)


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
    settings = _settings(config, warehouse)
    if _preflight():
        return 0
    from app.setup.doctor import doctor as run_doctor

    return run_doctor(settings, as_json)


@app.command()
def completion() -> int:
    """Print a script for bash and zsh that completes commands, options, questions, tables and jobs."""
    from app.setup.completion import script

    print(script(_command()), end="")
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
        events_per_s, topics, principals, _duration(batch, "--batch") / 1000, shadows, prices
    )
    return run_size(load, as_json, why)


@app.command()
def tables(
    name: Annotated[str | None, Argument(help="One table or view, with its columns.")] = None,
    config: Config = None,
    warehouse: Warehouse = None,
    sql: Annotated[bool, Option("--sql", help="Print the SQL of a view.")] = False,
    ddl: Annotated[
        bool, Option("--ddl", help="Print statements that register tables in an engine.")
    ] = False,
    engine: Annotated[
        str, Option(help="Engine of --ddl: spark (any of its catalogues) or duckdb.")
    ] = "spark",
    as_json: Json = False,
) -> int:
    """List the tables and views, and describe their columns."""
    from app.read.query import tables as run_tables

    return run_tables(
        _settings(config, warehouse), name=name, sql=sql, as_json=as_json, ddl=ddl, engine=engine
    )


@app.command()
def query(
    sql: Annotated[
        str | None, Argument(help="SQL over the tables and views, or a ready question.")
    ] = None,
    config: Config = None,
    warehouse: Warehouse = None,
    cluster: Cluster = None,
    as_of: AsOf = None,
    param: Annotated[
        list[str] | None, Option(help="Parameter of a ready question: name=value.")
    ] = None,
    by: Annotated[
        str | None, Option(help="What a ready question's rows are about: --param by=VALUE.")
    ] = None,
    every: Annotated[bool, Option("--all", help="List all ready questions.")] = False,
    since: Annotated[
        str | None, Option(help="From this time on: --param since=TIME of a ready question.")
    ] = None,
    until: Annotated[
        str | None, Option(help="Before this time: --param until=TIME of a ready question.")
    ] = None,
    wide: Annotated[
        bool, Option("--wide", help="Show all columns of a ready question's answer.")
    ] = False,
    statement: Annotated[bool, Option("--sql", help="Print the SQL of a ready question.")] = False,
    as_json: Json = False,
    csv: Annotated[bool, Option("--csv", help="Answer as CSV.")] = False,
    spreadsheet: Annotated[
        bool,
        Option("--spreadsheet", help="Answer as CSV without formulas: = + - @ get an apostrophe."),
    ] = False,
    timeout: Annotated[str | None, Option(help="Time limit, such as 30s. Default: none.")] = None,
    memory: Annotated[
        str | None, Option(help="Memory limit, such as 2GB. Default: half of the machine's.")
    ] = None,
    rows: Annotated[
        int | None,
        Option(
            min=1,
            help="Row limit. Default: 20 for a question, 200 for SQL, all with --json or --csv.",
        ),
    ] = None,
) -> int:
    """Run SQL over the warehouse (DuckDB over the Delta tables), or a ready question; without
    either, list the questions that answer most."""
    from app.read.query import AnswerLimits, Output, list_questions, print_statement
    from app.read.query import query as run_query

    forms: dict[Output, bool] = {"json": as_json, "csv": csv, "spreadsheet": spreadsheet}
    chosen = [form for form, wanted in forms.items() if wanted]
    if len(chosen) > 1:
        raise UserError(f"query: --{chosen[0]} and --{chosen[1]} exclude each other")
    output: Output = chosen[0] if chosen else "table"
    if every or sql is None:
        from app.read.relations import Warehouse as Tables

        return list_questions(output, every, Tables.of(_settings(config, warehouse).location))
    as_of_ms, settings = _moment(as_of, "--as-of"), _settings(config, warehouse)
    named = {"by": by, "since": since, "until": until}
    params = [*(param or []), *(f"{name}={text}" for name, text in named.items() if text)]
    if statement:
        return print_statement(sql, params)
    return run_query(
        settings,
        sql,
        output,
        as_of_ms,
        params,
        AnswerLimits(
            None if timeout is None else _duration(timeout, "--timeout"),
            None if memory is None else _memory(memory),
            wide,
        ),
        rows,
        cluster,
    )


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

    times = _moment(start, "--from"), _moment(end, "--to"), _moment(as_of, "--as-of")
    return run_report(
        _settings(config, warehouse), out, *times, as_json, config is not None, cluster
    )


@app.command()
def serve(
    config: Config = None,
    warehouse: Warehouse = None,
    listen: Annotated[str, Option(help="HOST:PORT to serve on.")] = "127.0.0.1:9465",
) -> int:
    """Serve what is wrong now as a page for a browser, until stopped."""
    from app.show.live import serve as run_serve

    return run_serve(_settings(config, warehouse, metrics={"listen": listen}))


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

    return run_quality(_settings(config, warehouse), as_json, table or [], again)


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

    return run_reconcile(_settings(config, warehouse), as_json, watch, cluster)


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

    return run_forecast(_settings(config, warehouse), _moment(at), as_json, cluster)


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

    return run_maintain(_settings(config, warehouse), dry_run, as_json)


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
        _settings(config, warehouse),
        {kind: texts for kind, texts in names.items() if texts},
        dry_run,
        now,
        as_json,
    )


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
    keep = trace is None or config is not None or warehouse is not None
    return _answer_of("bakeoff")(
        _settings(config, warehouse), trace, policies, sizes, vary or [], keep, as_json
    )


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
        _span(start, end),
        0 if warm_up is None else _duration(warm_up, "--warm-up"),
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
    if _preflight():
        if _preflight() == HERE:
            refuse(settings, asked)
        return 0
    with submitted_session(settings, "weir-replay") as spark:
        return run_replay(settings, asked, spark)


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
            _duration(text, option)
    given = {"listen": listen, "refresh_s": refresh, "idle_s": idle, "top": top}
    section = {key: value for key, value in given.items() if value is not None}
    return run_metrics(_settings(config, warehouse, metrics=section), once, as_json)


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


@policy_app.command("test")
def policy_test(
    files: Annotated[list[Path], Argument(help="Files with cases.")], as_json: Json = False
) -> int:
    """Play traffic against policies and compare with what is expected; exit code 1 if a case fails."""
    from app.whatif.policy_test.cases import test_policies

    return test_policies(files, as_json)


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

    return show(_settings(config, warehouse), config, name, _moment(at), cluster, as_json)


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
            _settings(config, warehouse, policy_files=[], policies=[one.document for one in found]),
        )

    first, second = side("before", before, documents[0]), side("after", after, documents[1])
    wanted = Wanted(
        range_of(on),
        0 if warm_up is None else _duration(warm_up, "--warm-up"),
        () if jobs is None else jobs_of(first.settings, jobs),
        Choice(tuple(clusters or ()), tuple(tenants or ()), tuple(topics or ())),
        slice_records,
        keep,
        out,
        rows,
        as_json,
    )
    if _preflight():
        return 0
    with submitted_session(first.settings, "weir-policy-diff") as spark:
        return effect(first, second, changes(*documents), wanted, spark)


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
    from app.terminal.moments import read_duration_ms

    if share is not None and percentile is not None:
        raise UserError("--percentile: is another way to say --share: leave out one of the two")
    if percentile is not None:
        share = (100 - percentile) / 100
    history_ms = read_duration_ms(min_history, f"--min-history {min_history}")
    return _answer_of("policy suggest publish")(
        _settings(config, warehouse),
        {
            "per": per,
            "rates": rate,
            "share": 0.01 if share is None else share,
            "headroom": headroom,
            "min_publishes": min_publishes,
            "min_history_ms": history_ms,
            "span": _span(start, end),
        },
        {
            "out": out,
            "verify": verify,
            "curves": curve,
            "every": every,
            "as_json": as_json,
        },
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
    return _answer_of("policy suggest producer-ids")(
        _settings(config, warehouse), share, every, as_json, headroom, out
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
    from app.terminal.moments import read_duration_ms

    return _answer_of("policy suggest client-quotas")(
        _settings(config, warehouse),
        {
            "per": per,
            "types": types,
            "share": share,
            "headroom": headroom,
            "min_history_ms": read_duration_ms(min_history, f"--min-history {min_history}"),
            "span": _span(start, end),
        },
        {"out": out, "every": every, "as_json": as_json},
    )


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
    at_ms, as_of_ms = _moment(at), _moment(as_of, "--as-of")
    return explain(_settings(config, warehouse), ask, at_ms, window, as_of_ms, as_json)


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

    return check(_settings(config, warehouse), as_json, _moment(at), rule or [], cluster)


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
        _settings(config, warehouse),
        None if interval is None else _duration(interval, "--interval"),
        as_json,
        rule or [],
    )


def moment(text: str, option: str = "--at") -> int:
    """Milliseconds since the epoch of a time on the command line; UTC without an offset."""
    from app.terminal.moments import moment_ms

    return moment_ms(text, f"{option} {text}")


def _moment(text: str | None, option: str = "--at") -> int | None:
    return None if text is None else moment(text, option)


def _span(start: str | None, end: str | None) -> Any:
    """The event times of --from and --to of a command that reads the archive."""
    from app.whatif.replay.event_span import FIRST_MS, LAST_MS, EventSpan

    return EventSpan(
        FIRST_MS if start is None else moment(start, "--from"),
        LAST_MS if end is None else moment(end, "--to"),
    )


def _duration(text: str, option: str) -> int:
    """Milliseconds of a duration on the command line; a UserError if it is none or 0."""
    from app.terminal.moments import read_duration_ms

    found = read_duration_ms(text, f"{option} {text}")
    if not found:
        raise UserError(f"{option} {text}: allowed: more than 0")
    return found


def _memory(text: str) -> int:
    """Bytes of a size on the command line; a UserError if it is none, or too small to start."""
    from app.terminal.sizes import read_size

    found = read_size(text)
    if found is None or found < LEAST_MEMORY:
        raise UserError(f"--memory {text}: allowed: a size from 64MB on, such as 512MB or 2GB")
    return found


@alerts_app.command("rules")
def alerts_rules(config: Config = None, warehouse: Warehouse = None, as_json: Json = False) -> int:
    """List the rules: what each evaluates and when it fires."""
    from app.show.alerts import rules

    return rules(_settings(config, warehouse), as_json)


@cache
def _command() -> Any:
    return typer.main.get_command(app)


def main(arguments: list[str] | None = None) -> int:
    """Run one command; exit code 0 done, 1 findings, 2 user error, 3 internal error, 75 something does
    not answer, 130 Ctrl-C, 143 SIGTERM."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    # The switch works anywhere on the line, also after the command.
    arguments = [a for a in arguments if a != "--debug"]
    log.end()
    try:
        with (
            ending_with_jvm(),
            stoppable() if _answers(arguments) else nullcontext(),
            # Not by the command's own `main`: that takes the end of a damaged file for a Ctrl-C.
            _command().make_context(PROGRAM, list(arguments)) as context,
        ):
            code = int(_command().invoke(context) or 0)
        sys.stdout.flush()  # what cannot be written is an error of the command
        return code
    except typer.Exit as stop:
        return stop.exit_code
    except CheckFound as found:
        return _say(str(found), 1, debug)
    except UserError as error:
        return _say(f"weir: {error}", error.exit_code, debug)
    except ModuleNotFoundError as error:
        return _say(f"weir: {not_installed(str(error.name))}", 2, debug)
    except BrokenPipeError:
        # The reader (`| head`) has closed the pipe; nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return _say("weir: interrupted", 130, debug)
    except Terminated:
        return _say("weir: terminated", 143, debug)
    except Exception as error:  # noqa: BLE001 - the outermost frame: reported, exit code 3
        return _unexpected(error, debug)


def _unexpected(error: Exception, debug: bool) -> int:
    usage: Callable[[], str] | None = getattr(error, "format_message", None)
    if usage is not None:
        # A mistake on the command line, as click reports it.
        return _say(f"weir: {usage()} (--help lists the options)", 2, debug)
    if refusal(error):
        return _say(f"weir: {_refusing(error)}", 2, debug)
    return _say(
        f"weir: {type(error).__name__}: {reason(error)}\n"
        "This is an internal error; --debug shows the stack trace.",
        3,
        debug,
    )


def _refusing(error: Exception) -> str:
    """Which file the system has refused, and why. Without a name (`folders.put` has one) it is the
    standard output, to which nothing more is written, nor at exit."""
    if not isinstance(error, OSError) or error.strerror != refusal(error):
        return reason(error)  # as a library has it
    if error.filename is None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return f"{error.filename or 'standard output'}: {error.strerror}"


def _say(text: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    with suppress(OSError):  # the exit code has to say it
        if not log.error(text.removeprefix("weir: ")):
            say(without_secrets(text), file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
