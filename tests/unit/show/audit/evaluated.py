"""Rows of tables, checked by their suites."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb

from app.show.audit.audit import add_functions, audit
from app.show.audit.checks import AuditCheck
from app.tables.definitions import TABLES
from tests.support.throttle_rows import frame

Rows = list[dict[str, Any]]
Failed = dict[tuple[str, str | None], int | None]


def failures(
    table: str, rows: Rows, checks: list[AuditCheck], others: Mapping[str, Rows] | None = None
) -> Failed:
    """Rows against each expectation of a table that fails, by its name and columns; `others` are
    the rows of the tables that the checks ask besides."""
    with duckdb.connect() as connection:
        add_functions(connection)
        for name, held in {**(others or {}), table: rows}.items():
            connection.register(name, frame(name, held))
        results = audit(connection, table, TABLES[table].schema, checks)
    return {
        (r["expectation"], r["column"]): r["unexpected_count"] for r in results if not r["success"]
    }
