"""Rows in the columns of their table."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from app.tables.definitions import Table


def shaped(rows: pa.Table, table: Table, constants: Mapping[str, pa.Scalar]) -> pa.Table:
    """Rows with the columns of their table, in order; `constants` are the same for every row."""
    columns = []
    for column in table.schema:
        if column.name in rows.column_names:
            columns.append(rows.column(column.name).cast(column.type))
        elif column.name in constants:
            columns.append(pa.repeat(constants[column.name], rows.num_rows).cast(column.type))
        else:
            columns.append(pa.nulls(rows.num_rows, column.type))
    return pa.table(columns, schema=table.schema)
