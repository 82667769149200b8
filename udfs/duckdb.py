"""The functions in DuckDB's SQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from udfs.functions import FUNCTIONS, Function

if TYPE_CHECKING:
    import duckdb

_NAMES = {pa.string(): "VARCHAR", pa.int32(): "INTEGER"}


def register(connection: duckdb.DuckDBPyConnection) -> tuple[str, ...]:
    """Register every function in a connection; returns the names."""
    from duckdb.func import FunctionNullHandling, PythonUDFType

    for function in FUNCTIONS.values():
        connection.create_function(
            function.name,
            _columnar(function),
            ["VARCHAR"],
            _NAMES[function.gives],
            type=PythonUDFType.ARROW,
            null_handling=FunctionNullHandling.SPECIAL,
        )
    return tuple(FUNCTIONS)


def _columnar(function: Function) -> Callable[[Any], Any]:
    return lambda column: function.of(_array(column))


def _array(column: Any) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    return column.cast(pa.string())
