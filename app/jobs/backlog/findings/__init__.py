"""What the summary of a report says of backlogs and of Kafka groups."""

from __future__ import annotations

from app.jobs.backlog.findings import groups, subscriptions
from app.show.report.model import JobFindings

FINDINGS = (JobFindings(40, subscriptions.findings), JobFindings(40, groups.findings))
