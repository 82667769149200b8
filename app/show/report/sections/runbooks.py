"""The runbooks that a page names, folded inside it."""

from __future__ import annotations

from collections.abc import Iterable

from app.show.report.model import Grid, Part, ReportSection, Runbook
from app.show.report.text import runbook_name, runbook_page


def runbooks(parts: Iterable[Part]) -> ReportSection | None:
    """Weir's own runbooks in the cells of grids, in the order of the page; None without any."""
    named = dict.fromkeys(
        row[column.key]
        for part in parts
        if isinstance(part, Grid)
        for column in part.columns
        if column.kind == "runbook"
        for row in part.rows
    )
    pages = [
        Runbook(runbook_name(name), page.read_text("utf-8"))
        for name in named
        if (page := runbook_page(name)) is not None
    ]
    if not pages:
        return None
    return ReportSection("runbooks", "Runbooks", ["How to confirm, and what to do."], pages)
