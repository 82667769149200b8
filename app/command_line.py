"""The command line: its groups, the options that several commands have, and how values are read.

A room has its commands in `<room>_commands`, a job in `commands`; `app.cli` loads them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option, Typer

from app.errors import UserError


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


def configured(
    config: Path | None, warehouse: str | None = None, *, reads: bool = False, **overrides: Any
) -> Any:
    """The settings of a configuration, or of a warehouse alone."""
    from app.config.settings import load_settings

    if warehouse:
        overrides["warehouse"] = warehouse
    return load_settings(config, overrides, reads=reads)


def preflight() -> str | None:
    """Where the command will run, while spark-submit.sh only checks its input before Spark starts:
    `here` or `elsewhere`; None when it is to do its work."""
    return os.environ.get("WEIR_PREFLIGHT") or None


def moment(text: str | None, option: str = "--at") -> int | None:
    """Milliseconds since the epoch of a time on the command line; UTC without an offset."""
    from app.terminal.moments import moment_ms

    return None if text is None else moment_ms(text, f"{option} {text}")


def duration(text: str, option: str) -> int:
    """Milliseconds of a duration on the command line; a UserError if it is none or 0."""
    from app.terminal.moments import read_duration_ms

    found = read_duration_ms(text, f"{option} {text}")
    if not found:
        raise UserError(f"{option} {text}: allowed: more than 0")
    return found
