"""Answers from DuckDB what expectations of Great Expectations ask about a table.

Great Expectations brings engines for pandas, Spark and SQLAlchemy. The first holds a table in
memory, the second takes ten jobs and more per table from the stream beside it. Here expectations
name the metrics that they need and judge their values, which takes a third of the time of a
validator of Great Expectations. All that is asked of single rows is counted in one pass over the
table; rows are fetched only where an expectation fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import duckdb
import pyarrow as pa
from great_expectations import expectations
from great_expectations.execution_engine import ExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation, Expectation
from great_expectations.validator.metric_configuration import MetricConfiguration

from app.read.table_relation import sql_type
from app.show.audit.checks import ROWS_WHERE, AuditCheck
from app.terminal.rows import plain

SAMPLE = 3
"""Rows, or values, that a failed expectation shows."""


class ExpectTableColumnsToHaveTypes(BatchExpectation):
    """A table has these columns, each of its type in DuckDB; it may have others besides."""

    column_types: dict[str, str]
    metric_dependencies = ("table.column_types",)
    success_keys = ("column_types",)

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,
        execution_engine: ExecutionEngine[Any] | None = None,
    ) -> dict[str, Any]:
        found = {column["name"]: column["type"] for column in metrics["table.column_types"]}
        amiss = {
            name: found.get(name, "missing")
            for name, kind in self.column_types.items()
            if found.get(name) != kind
        }
        return {"success": not amiss, "result": {"observed_value": amiss}}


@dataclass(frozen=True)
class Asked:
    """An expectation, with the metrics that it needs by their names and the form of its result."""

    expectation: Expectation
    metrics: Mapping[str, MetricConfiguration]
    form: dict[str, Any]


@lru_cache(maxsize=4096)
def asked(check: AuditCheck) -> Asked:
    """A check as Great Expectations has it, which takes longer to make than to answer."""
    own = ExpectTableColumnsToHaveTypes
    kind = own if check.kind == own.__name__ else getattr(expectations, check.kind)
    made: Expectation = kind(**check.arguments)
    # Rows of a query come only with COMPLETE, which asks the other expectations for more than
    # anybody reads.
    form = {"result_format": "COMPLETE" if check.name else "BASIC"}
    needed = made.get_validation_dependencies(runtime_configuration=form)
    return Asked(made, needed.metric_configurations, {"result_format": needed.result_format})


class Metrics:
    """The metrics that expectations need about one table of a DuckDB connection."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        table: str,
        schema: pa.Schema,
        needed: Iterable[MetricConfiguration],
    ) -> None:
        """`schema` is that of the committed table, which may differ from its definition; what is
        `needed` of single rows is counted at once."""
        self._connection = connection
        self._table = table
        self._schema = schema
        self._counts: dict[str, int] = {}
        conditions = {c for metric in needed if (c := _condition(metric)) is not None}
        # If one of them cannot be asked, that is found later, and the others are answered.
        with suppress(duckdb.Error):
            self._counts = self._count(sorted(conditions))

    def judge(self, asked: Asked) -> dict[str, Any]:
        """The `type` of an expectation with its `success` and `result`, or the `error` that prevents
        its evaluation."""
        about = {"type": asked.expectation.expectation_type}
        try:
            values = {name: self._value(metric) for name, metric in asked.metrics.items()}
        except duckdb.Error as error:
            return {**about, "error": error}
        return {**about, **asked.expectation._validate(values, dict(asked.form))}

    def _count(self, conditions: list[str]) -> dict[str, int]:
        """How many rows satisfy each condition, in one pass."""
        if not conditions:
            return {}
        counts = ", ".join(f"count(*) FILTER (WHERE {c})" for c in conditions)
        row = self._connection.execute(f"SELECT {counts} FROM {self._table}").fetchone()
        return dict(zip(conditions, row or (), strict=True))

    def _counted(self, condition: str) -> int:
        if condition not in self._counts:
            self._counts.update(self._count([condition]))
        return self._counts[condition]

    def _value(self, metric: MetricConfiguration) -> Any:
        name = metric.metric_name
        if name == "table.column_types":
            return [{"name": field.name, "type": sql_type(field.type)} for field in self._schema]
        if name == "table.row_count" or name.endswith("filtered_row_count"):
            return self._counted("true")
        counts = name.endswith("_count")
        condition = _condition(metric)
        if condition is not None and (counts or not self._counted(condition)):
            return self._counted(condition) if counts else []
        query = _query(metric).replace("{batch}", self._table)
        if counts:
            row = self._connection.execute(f"SELECT count(*) FROM ({query})").fetchone()
            return row[0] if row else 0
        rows = self._connection.execute(f"FROM ({query}) LIMIT {SAMPLE}")
        names = [column[0] for column in rows.description or []]
        values = [plain(dict(zip(names, row, strict=True))) for row in rows.fetchall()]
        column = metric.metric_domain_kwargs.get("column")
        return values if column is None else [row[column] for row in values]


def _condition(metric: MetricConfiguration) -> str | None:
    """The condition on the rows that a metric is about; None if it is not about single rows."""
    values = metric.metric_value_kwargs
    name = metric.metric_name
    if name == "table.row_count":
        return "true"
    if name.startswith("unexpected_rows_query"):
        query: str = values["unexpected_rows_query"]
        return query.removeprefix(ROWS_WHERE) if query.startswith(ROWS_WHERE) else None
    column = f'"{metric.metric_domain_kwargs.get("column")}"'
    if name.startswith("column_values.nonnull"):
        return f"{column} IS NULL"
    if name.startswith("column_values.in_set"):
        allowed = ", ".join("'" + str(v).replace("'", "''") + "'" for v in values["value_set"])
        return f"{column} NOT IN ({allowed})"
    if name.startswith("column_values.between"):
        ends = [("<", values["min_value"]), (">", values["max_value"])]
        return " OR ".join(f"{column} {sign} {end}" for sign, end in ends if end is not None)
    return None


def _query(metric: MetricConfiguration) -> str:
    """The rows that a metric is about, as a query over {batch}."""
    condition = _condition(metric)
    if condition is not None:
        return ROWS_WHERE + condition
    if metric.metric_name.startswith("compound_columns.unique"):
        key = ", ".join(f'"{column}"' for column in metric.metric_domain_kwargs["column_list"])
        # By their hashes first: a table of keys is larger than memory where one of hashes is not.
        return f"""
            SELECT {key} FROM (
              SELECT {key}, count(*) OVER (PARTITION BY {key}) AS rows_of_key FROM {{batch}}
              WHERE hash({key}) IN (
                SELECT hash({key}) FROM {{batch}} GROUP BY 1 HAVING count(*) > 1
              )
            ) WHERE rows_of_key > 1
        """
    query: str = metric.metric_value_kwargs["unexpected_rows_query"]
    return query
