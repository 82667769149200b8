"""Prints findings on a terminal, as the demo does."""

from __future__ import annotations

import shlex
import textwrap
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable

from app.show.report.model import Grid
from app.show.report.phrases import number_of
from app.show.report.report_reader import ReportReader
from app.show.report.sections.data_quality import QUARANTINED
from app.show.report.summary import all_findings
from app.show.report.text import NUMBERS
from app.terminal.program import PROGRAM

SHOWN = 8
"""Rows of a table that are printed."""
# A record may break several rules.
_BY_REASON = """
SELECT reason_code, count(DISTINCT (source_partition, source_offset)) AS records FROM quarantine
GROUP BY reason_code ORDER BY records DESC, reason_code
"""
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


def render(reader: ReportReader, console: Console) -> None:
    """Prints the findings of the jobs: their sentences, their tables, and the quarantined records
    by reason."""
    findings = all_findings()
    for found in findings:
        for sentence in found.sentences(reader):
            show(console, sentence)
    for found in findings:
        table = None if found.table is None else found.table(reader)
        if table is not None and table.rows:
            _render_table(table, console)
    records = reader.row(QUARANTINED)["records"]
    console.print()
    console.print(
        f"{number_of(records, 'record')} in quarantine, by reason:"
        if records
        else "Nothing in quarantine.",
        markup=False,
    )
    by_reason = reader.rows(_BY_REASON)
    if by_reason:
        show(console, ", ".join(f"{row['reason_code']} {row['records']}" for row in by_reason))


def _render_table(table: Grid, console: Console) -> None:
    grid = RichTable(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column in table.columns:
        if column.kind in NUMBERS:
            grid.add_column(column.heading, justify="right", no_wrap=True)
        else:
            grid.add_column(column.heading, overflow="fold")
    for row in table.rows[:SHOWN]:
        grid.add_row(*(row[column.key] for column in table.columns))
    console.print()
    console.print(grid)
    hidden = len(table.rows) - SHOWN
    if hidden > 0:
        console.print(f"and {hidden} more", markup=False)


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
