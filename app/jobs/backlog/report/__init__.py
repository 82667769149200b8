"""The sections of a report on backlogs and on Kafka groups."""

from __future__ import annotations

from app.jobs.backlog.report.groups import groups
from app.jobs.backlog.report.subscriptions import backlogs
from app.show.report.model import JobSection

SECTIONS = (
    JobSection(50, backlogs, ("backlog_checks",)),
    JobSection(60, groups, ("group_lag", "lost_messages")),
)
REACHED = ("backlog_checks", "group_lag")
