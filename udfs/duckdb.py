"""The functions in DuckDB's SQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from udfs.functions import FUNCTIONS, Function

if TYPE_CHECKING:
    import duckdb

_NAMES = {
    pa.string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.int64(): "BIGINT",
    pa.int32(): "INTEGER",
}


def duckdb_type(kind: pa.DataType) -> str:
    """The name of a type in DuckDB's SQL."""
    if pa.types.is_struct(kind):
        return f"STRUCT({', '.join(f'{field.name} {duckdb_type(field.type)}' for field in kind)})"
    return _NAMES[kind]


def register(connection: duckdb.DuckDBPyConnection) -> tuple[str, ...]:
    """Register every function in a connection; returns the names."""
    from duckdb.func import FunctionNullHandling, PythonUDFType

    for function in FUNCTIONS.values():
        connection.create_function(
            function.name,
            _columnar(function),
            [duckdb_type(kind) for _, kind in function.takes],
            duckdb_type(function.gives),
            type=PythonUDFType.ARROW,
            null_handling=FunctionNullHandling.SPECIAL,
        )
    return tuple(FUNCTIONS)


def _columnar(function: Function) -> Callable[..., Any]:
    kinds, of = [kind for _, kind in function.takes], function.of

    def columns(*given: Any) -> pa.Array:
        return of(*(_array(column, kind) for column, kind in zip(given, kinds, strict=True)))

    if len(kinds) == 1:
        return lambda first: columns(first)
    return lambda first, second: columns(first, second)


def _array(column: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    return column.cast(kind)
