"""Metrics of the job: backlogs and Kafka groups."""

from __future__ import annotations

from app.jobs.backlog.metrics.backlogs import BACKLOGS
from app.jobs.backlog.metrics.groups import GROUPS

METRICS = (BACKLOGS, GROUPS)
