"""The checks of every table: its definition, its rows, and its relations to other tables."""

from __future__ import annotations

from app.quality import backlog, chunks, entry_cache, groups, producer_ids, rate_limits, records
from app.quality.checks import Check, derived
from app.warehouse.tables import TABLES

_OWN = {
    **rate_limits.SUITES,
    **chunks.SUITES,
    **producer_ids.SUITES,
    **backlog.SUITES,
    **groups.SUITES,
    **entry_cache.SUITES,
    **records.SUITES,
}
SUITES: dict[str, list[Check]] = {
    name: _OWN[name] if name in _OWN else derived(table) for name, table in TABLES.items()
}
"""The checks of each table; by default those of its definition."""
ACROSS: dict[str, list[Check]] = {
    **rate_limits.ACROSS,
    **chunks.ACROSS,
    **producer_ids.ACROSS,
    **backlog.ACROSS,
    **entry_cache.ACROSS,
}
"""Checks of a table that ask others, which must be views of their names."""
