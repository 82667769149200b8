"""An execution engine for Great Expectations that answers from DuckDB.

Great Expectations brings engines for pandas, Spark and SQLAlchemy. The first holds a table in
memory, the second takes ten jobs and more per table from the stream beside it. This one knows the
metrics that the suites of Weir need. All that is asked of single rows is counted in one pass over
the table; rows are fetched only where an expectation fails.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NoReturn

import duckdb
import pyarrow as pa
from great_expectations import expectations
from great_expectations.exceptions import MetricResolutionError
from great_expectations.execution_engine import ExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation, Expectation
from great_expectations.expectations.metrics.metric_provider import MetricProvider
from great_expectations.expectations.registry import get_metric_kwargs, register_metric
from great_expectations.validator.metric_configuration import MetricConfiguration

from app.read.relations import sql_type
from app.show.audit.checks import ROWS_WHERE, AuditCheck
from app.terminal.rows import plain

SAMPLE = 3
"""Rows, or values, that a failed expectation shows."""

_OF_ROWS = (
    "column_values.nonnull",
    "column_values.in_set",
    "column_values.between",
    "compound_columns.unique",
)
"""Metrics that ask each row, or each key."""
_SUFFIXES = ("unexpected_count", "unexpected_values")
METRICS = (
    "table.row_count",
    "table.column_types",
    "unexpected_rows_query.row_count",
    "unexpected_rows_query.table",
    "compound_columns.unique.filtered_row_count",
    *(f"{name}.{suffix}" for name in _OF_ROWS for suffix in _SUFFIXES),
)
"""The metrics that the engine computes."""


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


def expectation(check: AuditCheck, number: int) -> Expectation:
    """A check as Great Expectations has it; `number` comes back in the result's meta."""
    own = ExpectTableColumnsToHaveTypes
    kind = own if check.kind == own.__name__ else getattr(expectations, check.kind)
    made: Expectation = kind(
        **check.arguments, description=check.name or None, meta={"number": number}
    )
    return made


class DuckDbEngine(ExecutionEngine[str]):
    """Answers what expectations ask about one table of a DuckDB connection."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, table: str, schema: pa.Schema
    ) -> None:
        """`schema` is that of the committed table, which may differ from its definition."""
        super().__init__(name="duckdb", caching=True)
        self._connection = connection
        self._table = table
        self._schema = schema
        self._counts: dict[str, int] = {}

    def resolve_metrics(
        self,
        metrics_to_resolve: Iterable[MetricConfiguration],
        metrics: dict[Any, Any] | None = None,
        runtime_configuration: dict[str, Any] | None = None,
    ) -> dict[Any, Any]:
        """The values of metrics by their ids; MetricResolutionError names one that has none."""
        wanted = list(metrics_to_resolve)
        conditions = {c for m in wanted if (c := _condition(m)) is not None} - self._counts.keys()
        # If one of them cannot be asked, that is found below, and the others are answered.
        with suppress(duckdb.Error):
            self._counts.update(self._count(sorted(conditions)))
        found = {}
        for metric in wanted:
            try:
                found[metric.id] = self._value(metric)
            except duckdb.Error as error:
                raise MetricResolutionError(str(error), (metric,)) from error
        return found

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

    def get_batch_data_and_markers(self, batch_spec: Any) -> NoReturn:
        """Refuse: the one batch is the table, and every condition is SQL of `_condition`."""
        raise TypeError(f"an audit has no other batches or row conditions: {batch_spec}")

    _comparison_condition_to_filter_clause = get_batch_data_and_markers  # type: ignore[assignment]
    _nullity_condition_to_filter_clause = get_batch_data_and_markers  # type: ignore[assignment]
    _and_condition_to_filter_clause = get_batch_data_and_markers  # type: ignore[assignment]
    _or_condition_to_filter_clause = get_batch_data_and_markers  # type: ignore[assignment]


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


class _DuckDbMetric(MetricProvider):
    """Stands in the registry for a metric that `DuckDbEngine` answers; it depends on no other."""

    @classmethod
    def _get_evaluation_dependencies(
        cls,
        metric: MetricConfiguration,
        configuration: Any = None,
        execution_engine: Any = None,
        runtime_configuration: Any = None,
    ) -> dict[str, MetricConfiguration]:
        return {}


for _name in METRICS:
    # Great Expectations knows them all, of its own engines.
    _keys = get_metric_kwargs(_name)
    register_metric(
        metric_name=_name,
        metric_domain_keys=_keys["metric_domain_keys"],
        metric_value_keys=_keys["metric_value_keys"],
        execution_engine=DuckDbEngine,
        metric_class=_DuckDbMetric,
        metric_provider=None,
    )
