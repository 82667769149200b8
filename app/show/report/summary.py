"""The first screen of a report: one sentence, what to do, and what happened."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import attrgetter

from app.config.alerts import AlertSettings
from app.jobs import every
from app.show.alerts.evaluation import RuleError
from app.show.alerts.rule_files import told_of
from app.show.report.model import Finding, Grid, GridColumn, JobFindings, ReportSection, Row
from app.show.report.report_reader import ReportReader
from app.show.report.text import explained
from app.show.report.told import told

TOP = 12


def all_findings(reader: ReportReader, alerts: AlertSettings | None = None) -> list[Finding]:
    """What the facts of alert rules and the jobs tell, in their order."""
    declared = sorted([*_of_rules(alerts), *every("findings", "FINDINGS")], key=attrgetter("place"))
    found: list[Finding] = []
    silent: set[str] = set()
    for each in declared:
        if not silent.issuperset(each.unless):
            continue
        try:
            own = each.findings(reader)
        except RuleError as error:
            own = [Finding(f"{error}.")]
        found += own
        if not own:
            silent.add(each.rule)
    return found


def _of_rules(alerts: AlertSettings | None) -> list[JobFindings]:
    limit_ms = (alerts or AlertSettings()).query_timeout_ms
    return [
        JobFindings(
            rule.finding.place,
            partial(told, rule=rule, finding=rule.finding, limit_ms=limit_ms),
            rule.name,
        )
        for rule in told_of(alerts).values()
        if rule.finding is not None
    ]


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
