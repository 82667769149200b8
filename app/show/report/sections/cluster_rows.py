"""The clusters of a warehouse side by side, where it has several."""

from __future__ import annotations

from app.jobs import every
from app.show.report.model import Grid, GridColumn, ReportSection, Tile
from app.show.report.report_reader import ReportReader
from app.terminal.counts import counted

TOP = 50
TITLES = {"of_group": "of"}
"""Headings of columns that are not their names."""


def cluster_rows(reader: ReportReader) -> ReportSection | None:
    """A row for each cluster; None where there is one."""
    rows = reader.ask("fleet", TOP)
    if len(rows) < 2:
        return None
    silent = [row for row in rows if row["answered"] is None and row["unanswered_polls"]]
    texts = [f"{row['cluster']} has answered no poll: {row['last_problem']}." for row in silent[:5]]
    named = [name for part in every("fleet", "FLEET") for name in part.names]
    numbers = {*named, "breached_quotas", "unanswered_polls"} - TITLES.keys()
    columns = [
        GridColumn(
            name, TITLES.get(name, name.replace("_", " ")), "number" if name in numbers else "text"
        )
        for name in ("cluster", *named, "breached_quotas", "unanswered_polls")
        if name == "cluster" or any(row[name] for row in rows)
    ]
    verdict = f"{counted(len(silent), 'cluster')} did not answer" if silent else ""
    return ReportSection(
        "fleet",
        "Clusters",
        texts,
        [Grid(f"{len(rows)} clusters", columns, rows, "fleet")],
        Tile("clusters", str(len(rows)), f"{len(silent)} did not answer", bad=bool(silent)),
        verdict,
    )
