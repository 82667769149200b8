"""Weir's functions in the SQL of reading commands (docs/functions.md)."""

from __future__ import annotations

import re

import duckdb

from udfs import register_duckdb

_CALL = re.compile(r"\bweir_\w+\s*\(", re.IGNORECASE)


def calls_functions(sql: str) -> bool:
    """Whether a statement calls one."""
    return _CALL.search(sql) is not None


def add_functions(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Register them if a statement calls one; importing their modules takes a moment."""
    if calls_functions(sql):
        register_duckdb(connection)
