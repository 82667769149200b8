"""What the summary of a report says of backlogs and of Kafka groups."""

from __future__ import annotations

from app.jobs.backlog.findings import groups, subscriptions
from app.report.model import Findings

FINDINGS = (Findings(40, subscriptions.sentences), Findings(40, groups.sentences))
