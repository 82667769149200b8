"""What the summary of a report says of client quotas where nobody is throttled or without a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.show.report.model import Finding, JobFindings
from app.terminal.phrases import number_of

if TYPE_CHECKING:
    from app.show.report.report_reader import ReportReader

_JUDGED = (
    "SELECT count(DISTINCT (s.cluster, s.user, s.client)) AS entities FROM client_quota_stats AS s"
)


def _within_quotas(reader: ReportReader) -> list[Finding]:
    entities = reader.row(_JUDGED)["entities"]
    text = f"{number_of(entities, 'client')} with a quota, none throttled."
    return [Finding(text)] if entities else []


FINDINGS = (JobFindings(7, _within_quotas, unless=("client-throttled", "client-without-limit")),)
