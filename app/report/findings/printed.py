"""Prints findings on a terminal, as the demo does."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table as Grid

from app.report.findings.throttling import SHOWN, Summary, sentences
from app.report.findings.words import clock, duration, number_of, short
from app.terminal.program import PROGRAM

SHORT_NAMES = {"resource_group": "group", "io_thread": "IO thread"}
QUERIES = (
    (
        "topics by the time that they were paused for the limits of others",
        "SELECT topic, sum(collateral_times) AS pauses, round(sum(collateral_ns) / 1e9, 1) AS seconds "
        "FROM topic_throttle_stats GROUP BY topic ORDER BY seconds DESC LIMIT 10",
    ),
    (
        "pauses of connections with their culprits and shared limits",
        "SELECT cnx_id, (end_ns - start_ns) / 1e9 AS seconds, culprit_topics, shared_limits "
        "FROM throttle_intervals ORDER BY seconds DESC LIMIT 10",
    ),
    (
        "quarantined records by reason, with an example",
        "SELECT reason_code, count(*) AS records, max(detail) AS detail, max(raw) AS example "
        "FROM quarantine GROUP BY reason_code ORDER BY records DESC",
    ),
    (
        "new producer ids by user, and batches that the quota would reject",
        "SELECT d.user, count(DISTINCT producer_id) AS distinct_ids, "
        "count(*) FILTER (WHERE verdict = 'rejected') AS rejected, max(bound) AS bound "
        "FROM producer_id_decisions d GROUP BY d.user ORDER BY distinct_ids DESC LIMIT 10",
    ),
    (
        "outcomes of large messages by consumer",
        "SELECT topic, consumer, outcome, count(DISTINCT uuid) AS messages "
        "FROM chunk_events GROUP BY topic, consumer, outcome ORDER BY messages DESC LIMIT 10",
    ),
)


def show(console: Console, text: str) -> None:
    """Prints a paragraph, indented, in lines without trailing blanks."""
    console.print(
        textwrap.fill(
            text,
            console.width,
            initial_indent="  ",
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        ),
        markup=False,
        soft_wrap=True,
    )


def render(summary: Summary, console: Console, others: Iterable[str] = ()) -> None:
    """Prints a summary: sentences, those of other jobs, the table of causes, and the quarantined
    records by reason."""
    for sentence in (*sentences(summary), *others):
        show(console, sentence)
    if summary.causes:
        grid = Grid(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
        grid.add_column("limit")
        grid.add_column("of", overflow="fold")
        for name in ("pauses", "paused", "topics"):
            grid.add_column(name, justify="right", no_wrap=True)
        grid.add_column("first", justify="right", no_wrap=True)
        for cause in summary.causes[:SHOWN]:
            limit = SHORT_NAMES.get(cause.limiter, cause.limiter)
            grid.add_row(
                limit,
                short(cause.name),
                str(cause.pauses),
                duration(cause.paused_ns),
                str(len(cause.topics)),
                clock(cause.first_ms),
            )
        console.print()
        console.print(grid)
        hidden = len(summary.causes) - SHOWN
        if hidden > 0:
            console.print(f"and {hidden} more", markup=False)
    records = summary.quarantined_records
    console.print()
    console.print(
        f"{number_of(records, 'record')} in quarantine, by reason:"
        if records
        else "Nothing in quarantine.",
        markup=False,
    )
    listed = ", ".join(f"{code} {n}" for code, n in summary.quarantined.items())
    if listed:
        show(console, listed)


def render_next_steps(out: Path, console: Console) -> None:
    """Prints where the tables are and queries to try."""
    warehouse = out / "warehouse"
    console.print(
        f"\nThe tables are in {warehouse} ({PROGRAM} tables lists them). Try:",
        markup=False,
        soft_wrap=True,
    )
    for meaning, sql in QUERIES:
        console.print(f"\n  # {meaning}", markup=False)
        console.print(
            f'  {PROGRAM} query --warehouse {shlex.quote(str(warehouse))} "{sql}"',
            markup=False,
            soft_wrap=True,
        )
