"""Answers of a warehouse as Arrow tables: `weir.open(...)`, for notebooks and programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.types as kinds

from app.config.location import Location
from app.errors import UserError
from app.read.question import MOST
from app.read.questions import QUESTIONS
from app.read.relations import Warehouse, connect_once, first_lines, only_select
from app.terminal.moments import moment_ms


class OpenWarehouse:
    """A warehouse to ask; each answer reads the newest version of its tables."""

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        self._warehouse = Warehouse.of(Location(uri, dict(options)))
        self._warehouse.require()

    def query(
        self,
        question: str,
        *,
        cluster: str | None = None,
        as_of: str | None = None,
        **params: str | int,
    ) -> pa.Table:
        """The rows of a ready question with its parameters, or of a SELECT over tables and views.

        All rows, unless a question is given `rows`. UserError for what cannot be answered.
        """
        warehouse = self._warehouse.of_cluster(cluster).at(
            None if as_of is None else moment_ms(as_of, f"as_of={as_of}")
        )
        try:
            with asked(warehouse, question, {n: str(v) for n, v in params.items()}) as (
                connection,
                sql,
                values,
            ):
                if "rows" not in params and "rows" in values:
                    values["rows"] = MOST
                return whole_numbers(connection.sql(sql, params=values or None).to_arrow_table())
        except duckdb.Error as error:
            raise UserError(f"query: {first_lines(error)}") from error


@contextmanager
def asked(
    warehouse: Warehouse, question: str, params: Mapping[str, str]
) -> Iterator[tuple[duckdb.DuckDBPyConnection, str, dict[str, Any]]]:
    """A connection with the tables of a ready question or a statement, its SQL and its values."""
    values: dict[str, Any] = {}
    is_ready = question in QUESTIONS
    if is_ready:
        chosen = QUESTIONS[question].asked(params)
        question, values = chosen.sql, chosen.values(params)
    elif params:
        raise UserError(f"{', '.join(params)}: goes with a ready question (weir query --all)")
    only_select(question, "query")
    with connect_once(warehouse, question, values, calendar=is_ready) as connection:
        yield connection, question, values


def whole_numbers(table: pa.Table) -> pa.Table:
    """The table with sums, which DuckDB has in 128 bits, in 64 where they fit."""
    for i, field in enumerate(table.schema):
        if kinds.is_decimal(field.type) and field.type.scale == 0:
            try:
                table = table.set_column(i, field.name, table.column(i).cast(pa.int64()))
            except pa.ArrowInvalid:
                continue
    return table
