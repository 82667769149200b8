"""What must hold of the tables of the job backlog."""

from __future__ import annotations

from app.jobs.backlog.audit import groups, subscriptions

SUITES = {**subscriptions.SUITES, **groups.SUITES}
ACROSS = subscriptions.ACROSS
