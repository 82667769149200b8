"""Rows of tables, checked by their suites."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import duckdb

from app.quality.audit import add_functions, audit
from app.quality.checks import Check
from app.quality.suites import ACROSS
from app.warehouse.tables import TABLES
from tests.support.throttle_rows import frame

Rows = list[dict[str, Any]]
Found = dict[tuple[str, str | None], int | None]


def failures(
    table: str, rows: Rows, checks: list[Check], others: Mapping[str, Rows] | None = None
) -> Found:
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


def across(
    table: str,
    rows: Rows,
    tables: Iterable[str],
    rows_of: Callable[[str], Rows],
    **changed: Rows,
) -> Found:
    """The failures across a table and others; `changed` are other rows of some tables."""
    others = {name: changed.get(name, rows_of(name)) for name in tables}
    return failures(table, rows, ACROSS[table], others)
