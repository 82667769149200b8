"""What reports tell of the facts of alert rules: a sentence for a row, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import duckdb

from app.config.alert_rule import FindingRule, Rule
from app.config.alerts import AlertSettings
from app.read.questions import QUESTIONS
from app.read.relations import first_lines, only_select
from app.show.alerts.evaluation import RuleError, filling
from app.show.report.model import Action, Finding, Row, Urgency
from app.show.report.report_reader import ReportReader
from app.terminal.phrases import was
from app.terminal.templates import columns, sentence

URGENCIES = {each.name.lower(): each for each in Urgency}
_WITH = re.compile(r"^\s*WITH\b", re.IGNORECASE)
TEMPLATES = ("says", "do", "because")
LIMIT_MS = AlertSettings().query_timeout_ms
MOST_ROWS = 10_000
"""Of the answer of a question."""


def told(
    reader: ReportReader, rule: Rule, finding: FindingRule, limit_ms: int = LIMIT_MS
) -> list[Finding]:
    """The findings of a rule; a RuleError if its SQL fails, takes longer than `limit_ms`, or gives no
    column that it names."""
    names, rows = answer(reader, rule, finding, limit_ms)
    for name, template in finding:
        for column in columns(template or "") if name in TEMPLATES else ():
            if column not in names:
                raise RuleError(
                    f"alert rule {rule.name}: finding.{name}: {column} is no column of its SQL"
                    f" (allowed: {', '.join(names)})"
                )
    found = [_finding(rule, finding, row) for row in rows[: finding.most]]
    more = len(rows) - finding.most
    if more > 0 and finding.more is not None:
        counted = {"more": more, "was": was(more), "are": "is" if more == 1 else "are"}
        found.append(Finding(_filled(rule, "more", finding.more, counted)))
    return found


def answer(
    reader: ReportReader, rule: Rule, finding: FindingRule, limit_ms: int = LIMIT_MS
) -> tuple[list[str], list[Row]]:
    """The columns and the rows of a finding."""
    where = f"alert rule {rule.name}: finding.sql"
    sql, values = finding.sql or ("FROM answer" if finding.question else newest(rule)), {}
    only_select(sql, where)
    if finding.question is not None:
        question = QUESTIONS[finding.question].asked({})
        values = question.values({"rows": str(MOST_ROWS)})
        sql = f"WITH answer AS ({question.sql}){_WITH.sub(',', f' {sql}')}"
    try:
        return reader.of_rule(sql, values, limit_ms)
    except duckdb.InterruptException as error:
        raise RuleError(
            f"{where}: took longer than alerts.query_timeout_ms ({limit_ms} ms)"
        ) from error
    except duckdb.Error as error:
        raise RuleError(f"{where}: {first_lines(error)}") from error


def newest(rule: Rule) -> str:
    """The newest row of each alert of a rule, with its greatest value and first start."""
    labels = ", ".join(f'"{name}"' for name in rule.labels or ())
    return f"""
SELECT * REPLACE (min(start_ms) OVER alert AS start_ms, max(value) OVER alert AS value)
FROM ({rule.sql.rstrip().rstrip(";")}
) WINDOW alert AS (PARTITION BY {labels})
QUALIFY row_number() OVER (PARTITION BY {labels} ORDER BY end_ms DESC) = 1
ORDER BY value DESC, {labels}"""


def _finding(rule: Rule, finding: FindingRule, row: Mapping[str, Any]) -> Finding:
    says = _filled(rule, "says", finding.says, row)
    remedy = _filled(rule, "do", finding.do or "", row)
    if not remedy:
        return Finding(says)
    urgency = row.get("urgency") or finding.urgency
    if urgency not in URGENCIES:
        raise RuleError(
            f"alert rule {rule.name}: finding.sql gives {urgency!r} as urgency"
            f" (allowed: {', '.join(URGENCIES)})"
        )
    action = Action(
        remedy,
        _filled(rule, "because", finding.because or "", row),
        URGENCIES[urgency],
        by_ms=row.get("by_ms"),
        lasts=bool(row.get("lasts")),
        cluster=row.get("cluster"),
        topic=row.get("topic"),
        user=row.get("user"),
        runbook=rule.runbook,
    )
    return Finding(says, [action])


def _filled(rule: Rule, key: str, template: str, words: Mapping[str, Any]) -> str:
    with filling(rule, f"finding.{key}", words):
        return sentence(template, words)
