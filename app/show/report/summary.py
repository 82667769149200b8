"""The first screen of a report: one sentence, what to do, and what happened."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from app.jobs import every
from app.show.report.model import Finding, Grid, GridColumn, ReportSection, Row
from app.show.report.report_reader import ReportReader
from app.show.report.text import explained

TOP = 12


def all_findings(reader: ReportReader) -> list[Finding]:
    """What the jobs have found, in their order."""
    declared = sorted(every("findings", "FINDINGS"), key=attrgetter("place"))
    return [finding for job in declared for finding in job.findings(reader)]


def what_happened(findings: Sequence[Finding]) -> ReportSection:
    """The sentences of all findings."""
    return ReportSection(
        "what-happened",
        "What happened",
        [finding.sentence for finding in findings] or ["No job has findings in this time."],
    )


def actions_of(findings: Sequence[Finding], reader: ReportReader) -> list[Row]:
    """What to do, the most urgent first, with the team that owns the topic or user."""
    actions = sorted(
        (action for finding in findings for action in finding.actions),
        key=lambda action: (action.urgency, action.by_ms or 0),
    )
    return [
        {
            "remedy": action.remedy,
            "reason": action.reason,
            "team": reader.team(of),
            "by_ms": action.by_ms,
            "lasts": action.lasts,
            "topic": action.topic,
            "explain": explained(of),
            "runbook": action.runbook,
        }
        for action in actions
        for of in [{"cluster": action.cluster, "topic": action.topic, "user": action.user}]
    ]


def what_to_do(rows: Sequence[Row]) -> Grid:
    """The actions of the first screen; owners where any is known."""
    columns = [
        GridColumn("remedy", "what to do", "told"),
        GridColumn("reason", "because"),
        *([GridColumn("team", "owner")] if any(row["team"] for row in rows) else []),
        GridColumn("by", "by", "time"),
        GridColumn("runbook", "runbook", "runbook"),
    ]
    hidden = len(rows) - TOP
    title = "What to do, most urgent first" if rows else "Nothing to do"
    return Grid(
        title if hidden <= 0 else f"{title}: {TOP} of {len(rows)}",
        columns,
        [{**row, "by": row["by_ms"] or ("now" if row["lasts"] else None)} for row in rows[:TOP]],
    )


def verdict(reader: ReportReader, sections: Sequence[ReportSection]) -> str:
    """One sentence about the whole, of the clauses of sections."""
    if reader.span is None:
        return "There is no data yet: no job has completed a window."
    clauses = [section.verdict for section in sections if section.verdict]
    if not clauses:
        return "No quota was breached, and no topic was paused for the limits of others."
    text = clauses[0] if len(clauses) == 1 else f"{', '.join(clauses[:-1])} and {clauses[-1]}"
    return f"{text[0].upper()}{text[1:]}."
