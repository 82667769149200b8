"""Prints what is to be done on a terminal, as the demo does."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from app.show.report.model import Row
from app.show.report.report_reader import ReportReader
from app.show.report.summary import actions_of, all_findings
from app.terminal.phrases import GLUE, clock, short, unbroken
from app.terminal.printable import lines
from app.terminal.program import PROGRAM

SHOWN = 9
"""Findings that are printed: with what is said about them, a demo fits a screen."""


def show(console: Console, text: str, begin: str = "  ") -> None:
    """Prints a paragraph after `begin`, in lines that part no number from what it counts."""
    filled = textwrap.fill(
        unbroken(text),
        console.width,
        initial_indent=begin,
        subsequent_indent=" " * len(begin),
        break_long_words=False,
        break_on_hyphens=False,
    )
    console.print(lines(filled.replace(GLUE, " ")), markup=False, soft_wrap=True)


def render(reader: ReportReader, console: Console) -> list[Row]:
    """Prints what is to be done, the most urgent first, else what happened; returns the actions."""
    findings = all_findings(reader)
    rows = actions_of(findings, reader)
    for number, row in enumerate(rows[:SHOWN], 1):
        before = f" before {clock(row['by_ms'])}" if row["by_ms"] else ""
        owner = f" ({row['team']})" if row["team"] else ""
        show(console, f"{row['remedy']}{before}: {row['reason']}{owner}.", f"  {number}. ")
    for finding in findings if not rows else ():
        show(console, finding.sentence)
    if len(rows) > SHOWN:
        show(console, f"and {len(rows) - SHOWN} more in the report.", "     ")
    return rows


def render_next_steps(out: Path, rows: Sequence[Row], console: Console) -> None:
    """Prints what leads on."""
    warehouse = shlex.quote(str(out / "warehouse"))
    topic = next((row["topic"] for row in rows if row["topic"]), None)
    steps = [
        ("the page with charts and runbooks", str(out / "report.html")),
        ("what can be asked", f"{PROGRAM} query --warehouse {warehouse}"),
        (
            "what is wrong now, kept current beside a run",
            f"{PROGRAM} serve --warehouse {warehouse}",
        ),
    ]
    if topic is not None:
        why = f"{PROGRAM} explain topic {shlex.quote(short(topic))} --warehouse {warehouse}"
        steps.insert(1, ("why, event by event", why))
    console.print()
    for meaning, command in steps:
        console.print(lines(f"  # {meaning}\n  {command}"), markup=False, soft_wrap=True)
