"""Runs the checks of one table with Great Expectations, on DuckDB."""

from __future__ import annotations

import json
import os
import zlib
from functools import cache
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from app.errors import reason
from app.show.audit.checks import AuditCheck

if TYPE_CHECKING:
    from great_expectations.data_context import EphemeralDataContext

Row = dict[str, Any]


def audit(
    connection: duckdb.DuckDBPyConnection, table: str, schema: pa.Schema, checks: list[AuditCheck]
) -> list[Row]:
    """One result per check: its columns of `quality_results` besides those of the audit.

    `connection` knows the table, and those that the checks ask besides, by name; `schema` is that
    of the committed table.
    """
    context = _context()
    from great_expectations.validator.validator import Validator

    from app.show.audit.audit_engine import DuckDbEngine, expectation

    engine = DuckDbEngine(connection, table, schema)
    validator = Validator(execution_engine=engine, data_context=context)
    found: dict[int, Any] = {}
    for form, named in (("BASIC", False), ("COMPLETE", True)):
        # Rows of a query come only with COMPLETE, which asks the other expectations for more than
        # anybody reads.
        results = validator.graph_validate(
            configurations=[
                expectation(check, number).configuration
                for number, check in enumerate(checks)
                if bool(check.name) == named
            ],
            runtime_configuration={"result_format": form},
        )
        # Great Expectations returns results in another order.
        for result in results:
            assert result.expectation_config is not None
            found[result.expectation_config.meta["number"]] = result
    return [_row(check, found[number]) for number, check in enumerate(checks)]


def add_functions(connection: duckdb.DuckDBPyConnection) -> None:
    """What the checks call and DuckDB does not have."""
    connection.create_function("crc32", lambda data: zlib.crc32(data), ["BLOB"], "BIGINT")


@cache
def _context() -> EphemeralDataContext:
    # Set before the import, which would otherwise send usage statistics.
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    return context


def _row(check: AuditCheck, result: Any) -> Row:
    found = result.result
    seen = {
        "observed": found.get("observed_value"),
        "examples": found.get("partial_unexpected_list")
        or (found.get("details") or {}).get("unexpected_rows"),
        "error": _error(result.exception_info),
    }
    return {
        "expectation": check.name or result.expectation_config.type,
        "column": check.column,
        "success": bool(result.success),
        "observed": json.dumps({k: v for k, v in seen.items() if v}, default=str),
        "unexpected_count": seen["observed"] if check.name else found.get("unexpected_count"),
    }


def _error(info: dict[str, Any]) -> str | None:
    """The error that prevents the evaluation of an expectation, such as a missing column."""
    nested = [info] if "raised_exception" in info else list(info.values())
    messages = [i["exception_message"] for i in nested if i.get("raised_exception")]
    return reason(messages[0]) if messages else None
