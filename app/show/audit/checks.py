"""The type of a check, and the checks that follow from the definition of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.read.table_relation import sql_type
from app.tables.definitions import COMMON_OUTPUT, TABLES, Table
from state.engine.table import WHOSE
from state.jobs import DECLARED

ROWS_WHERE = "SELECT * FROM {batch} WHERE "
"""How a query begins that asks each row by itself; the rest is the condition."""
ALWAYS = ("job", "cluster", "rule", "switches", "params_hash", "row_no")
"""Columns that every output row of a job has."""


@dataclass(frozen=True)
class AuditCheck:
    """One expectation: its class in Great Expectations, its arguments and the name it goes by."""

    kind: str
    arguments: dict[str, Any]
    name: str = ""
    reads: tuple[str, ...] = ()
    """Other tables that it asks."""

    def __hash__(self) -> int:
        return hash(repr(self))

    @property
    def column(self) -> str | None:
        """The columns that it is about, as the results name them."""
        columns = self.arguments.get("column_list")
        if columns and self.kind == "ExpectCompoundColumnsToBeUnique":
            return ",".join(columns)
        return self.arguments.get("column")


def rows_that(name: str, condition: str) -> AuditCheck:
    """No row satisfies `condition`; `name` describes the rule that holds."""
    return no_rows(name, f"{ROWS_WHERE}{condition}")


def no_rows(name: str, sql: str, *reads: str) -> AuditCheck:
    """A query over `{batch}`, and over the tables `reads`, finds nothing."""
    return AuditCheck("UnexpectedRowsExpectation", {"unexpected_rows_query": sql}, name, reads)


def values(column: str, allowed: tuple[str, ...]) -> AuditCheck:
    """Every value that is not null is one of `allowed`."""
    return AuditCheck("ExpectColumnValuesToBeInSet", {"column": column, "value_set": list(allowed)})


def between(column: str, least: int | None, most: int | None = None) -> AuditCheck:
    """Every value that is not null lies in a closed range; None is open."""
    arguments = {"column": column, "min_value": least, "max_value": most}
    return AuditCheck("ExpectColumnValuesToBeBetween", arguments)


def not_negative(*columns: str) -> list[AuditCheck]:
    """Every number of the columns that is not null is at least 0."""
    return [between(column, 0) for column in columns]


def unique(*columns: str) -> AuditCheck:
    """No two rows share the values of `columns`."""
    return AuditCheck("ExpectCompoundColumnsToBeUnique", {"column_list": list(columns)})


def not_null(*columns: str) -> list[AuditCheck]:
    """The columns always have a value."""
    return [AuditCheck("ExpectColumnValuesToNotBeNull", {"column": column}) for column in columns]


def derived(table: Table) -> list[AuditCheck]:
    """The checks of the definition of a table: its columns and types; of a job's output also
    its key, the columns that every such row has, and what holds of windows."""
    types = {field.name: sql_type(field.type) for field in table.schema}
    found = [AuditCheck("ExpectTableColumnsToHaveTypes", {"column_types": types})]
    if table.columns[: len(COMMON_OUTPUT)] != COMMON_OUTPUT:
        return found
    if table.job is not None:
        whose = [WHOSE.name] if table.live else []
        found.append(unique(*DECLARED[table.job].row_key, *table.more_key, *whose))
    found += [*not_null(*ALWAYS), between("row_no", 0)]
    if table.job is not None:
        job = DECLARED[table.job]
        found += [
            values("job", (table.job,)),
            *not_null(job.clock, *({"broker"} & set(job.key))),
            *([values("rule", table.rules)] if table.rules not in ((), ("window",)) else []),
        ]
    for column in table.columns:
        if column.needed:
            found += not_null(column.name)
        if column.words:
            found.append(values(column.name, tuple(dict.fromkeys(filter(None, column.words)))))
        if column.least is not None or column.most is not None:
            found.append(between(column.name, column.least, column.most))
    if {"window_start_ms", "window_ms"} <= set(table.names):
        found += [
            *not_null("window_start_ms", "window_ms"),
            between("window_ms", 1),
            rows_that("windows are aligned to the epoch", "window_start_ms % window_ms <> 0"),
        ]
    return found


def suite(table: str, *own: AuditCheck) -> list[AuditCheck]:
    """What is derived from the definition of a table, and what else holds of it."""
    return list({repr(check): check for check in (*derived(TABLES[table]), *own)}.values())


def window_checks(*key: str) -> list[AuditCheck]:
    """What holds of rows about a window, one per window and `key`."""
    return [
        unique(*key, "window_start_ms"),
        rows_that(
            "a window is written at its end",
            "ts_wall_ms <> window_start_ms + window_ms OR rule <> 'window'",
        ),
    ]
