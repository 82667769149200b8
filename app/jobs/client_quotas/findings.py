"""What the summary of a report says of client quotas: who is throttled, and by which limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.show.report.model import Action, Finding, JobFindings, Urgency
from app.show.report.phrases import NAMED, Row, number_of, was

if TYPE_CHECKING:
    from app.show.report.report_reader import ReportReader

_THROTTLED = """
SELECT d.cluster, d.quota_type, d.user AS user, d.client AS client, d.bound_level,
  arg_max(d.bound, d.ts_wall_ms) AS bound, count(*) AS requests,
  count(*) FILTER (WHERE d.verdict = 'refused') AS refused,
  count(DISTINCT d.broker) AS brokers, max(d.throttle_ms) AS longest_ms
FROM client_quota_decisions AS d
GROUP BY d.cluster, d.quota_type, d.user, d.client, d.bound_level
ORDER BY requests DESC, d.cluster, d.quota_type, d.user, d.client, d.bound_level
"""
_JUDGED = (
    "SELECT count(DISTINCT (s.cluster, s.user, s.client)) AS entities FROM client_quota_stats AS s"
)


def entity(row: Row) -> str:
    """Who shares a limit, in words."""
    who = [f"user {row['user']}"] if row["user"] else []
    return " with ".join([*who, *([f"client {row['client']}"] if row["client"] else [])])


def _findings(reader: ReportReader) -> list[Finding]:
    rows = reader.rows(_THROTTLED)
    if not rows:
        entities = reader.row(_JUDGED)["entities"]
        if not entities:
            return []
        return [Finding(f"{number_of(entities, 'client')} with a quota, none throttled.")]
    texts = [_throttled(row) for row in rows[:NAMED]]
    more = len(rows) - NAMED
    if more > 0:
        texts.append(f"{number_of(more, 'other limit')} {was(more)} also exceeded.")
    return [Finding(" ".join(texts), [_action(row) for row in rows[:NAMED]])]


def _throttled(row: Row) -> str:
    verb = "was refused" if row["refused"] else "was throttled"
    text = entity(row)
    return (
        f"{text[:1].upper()}{text[1:]} {verb} {number_of(row['requests'], 'time')} on"
        f" {number_of(row['brokers'], 'broker')} by its {row['quota_type']} quota"
        f"{_limit(row)}, for {row['longest_ms'] or 0} ms at most."
    )


def _limit(row: Row) -> str:
    bound = "" if row["bound"] is None else f" of {row['bound']:g} per s"
    return f"{bound} ({row['bound_level']})"


def _action(row: Row) -> Action:
    return Action(
        f"Give {entity(row)} another {row['quota_type']} quota, or find out why it exceeds it",
        f"{number_of(row['requests'], 'request')} over the limit{_limit(row)}",
        Urgency.LOSS if row["refused"] else Urgency.OWN,
        cluster=row["cluster"],
        user=row["user"],
        runbook="app/jobs/client_quotas/runbooks/client-throttled.md",
    )


FINDINGS = (JobFindings(25, _findings),)
