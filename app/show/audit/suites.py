"""The checks of every table: its definition, its rows, and its relations to other tables."""

from __future__ import annotations

from app.jobs import parts
from app.show.audit import record_suites
from app.show.audit.checks import AuditCheck, derived
from app.tables.definitions import TABLES

_JOBS = parts("audit").values()
_DECLARED = {
    **{table: suite for job in _JOBS for table, suite in job.SUITES.items()},
    **record_suites.SUITES,
}
SUITES: dict[str, list[AuditCheck]] = {
    name: _DECLARED[name] if name in _DECLARED else derived(table) for name, table in TABLES.items()
}
"""The checks of each table; by default those of its definition."""
ACROSS: dict[str, list[AuditCheck]] = {
    table: checks for job in _JOBS for table, checks in job.ACROSS.items()
}
"""Checks of a table that ask others, which must be views of their names."""
