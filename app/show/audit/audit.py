"""Runs the checks of one table with Great Expectations, on DuckDB."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa

from app.errors import reason
from app.show.audit.checks import AuditCheck

Row = dict[str, Any]


def audit(
    connection: duckdb.DuckDBPyConnection, table: str, schema: pa.Schema, checks: list[AuditCheck]
) -> list[Row]:
    """One result per check: its columns of `quality_results` besides those of the audit.

    `connection` knows the table, and those that the checks ask besides, by name; `schema` is that
    of the committed table.
    """
    # Set before the import, which would otherwise send usage statistics.
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    from app.show.audit.audit_engine import Metrics, asked

    needed = [metric for check in checks for metric in asked(check).metrics.values()]
    metrics = Metrics(connection, table, schema, needed)
    return [_row(check, metrics.judge(asked(check))) for check in checks]


def add_functions(connection: duckdb.DuckDBPyConnection) -> None:
    """What the checks call and DuckDB does not have."""
    connection.create_function("crc32", lambda data: zlib.crc32(data), ["BLOB"], "BIGINT")


def _row(check: AuditCheck, judged: Mapping[str, Any]) -> Row:
    found = judged.get("result", {})
    seen = {
        "observed": found.get("observed_value"),
        "examples": found.get("partial_unexpected_list")
        or (found.get("details") or {}).get("unexpected_rows"),
        # such as a missing column, which prevents the evaluation
        "error": reason(judged["error"]) if "error" in judged else None,
    }
    return {
        "expectation": check.name or judged["type"],
        "column": check.column,
        "success": bool(judged.get("success")),
        "observed": json.dumps({k: v for k, v in seen.items() if v}, default=str),
        "unexpected_count": seen["observed"] if check.name else found.get("unexpected_count"),
    }
