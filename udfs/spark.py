"""The functions in Spark's SQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from udfs.functions import FUNCTIONS, Function

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAMES = {pa.string(): "string", pa.binary(): "binary", pa.int64(): "bigint", pa.int32(): "int"}
_EXACT = {pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int32Dtype()}
"""Types of pandas for integers with nulls."""


def spark_type(kind: pa.DataType) -> str:
    """The name of a type in Spark's SQL."""
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{field.name}: {spark_type(field.type)}' for field in kind)}>"
    return _NAMES[kind]


def register(spark: SparkSession) -> tuple[str, ...]:
    """Register every function in the SQL of a session; returns the names."""
    from pyspark.sql.pandas.functions import pandas_udf

    make: Any = pandas_udf  # its overloads know functions only by their annotations
    for function in FUNCTIONS.values():
        spark.udf.register(function.name, make(_columnar(function), spark_type(function.gives)))
    return tuple(FUNCTIONS)


def _columnar(function: Function) -> Callable[..., Any]:
    """A function over columns of pandas, the form in which Spark passes them to Python."""
    kinds, of = [kind for _, kind in function.takes], function.of

    def columns(*given: pd.Series) -> pd.Series | pd.DataFrame:
        # As in DuckDB, a number is taken where a text is wanted.
        arrays = [pa.Array.from_pandas(s).cast(k) for s, k in zip(given, kinds, strict=True)]
        found = of(*arrays)
        if pa.types.is_struct(found.type):
            fields = pa.Table.from_arrays(found.flatten(), names=[f.name for f in found.type])
            return fields.to_pandas(types_mapper=_EXACT.get)
        return found.to_pandas(types_mapper=_EXACT.get)

    if len(kinds) == 1:
        return lambda first: columns(first)
    return lambda first, second: columns(first, second)
