"""The functions in Spark's SQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from udfs.functions import FUNCTIONS, Function

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = {pa.string(): "string", pa.int32(): "int"}
"""Types in Spark's SQL."""
_EXACT = {pa.int32(): pd.Int32Dtype()}
"""Types of pandas for integers with nulls."""


def register(spark: SparkSession) -> tuple[str, ...]:
    """Register every function in the SQL of a session; returns the names."""
    from pyspark.sql.pandas.functions import pandas_udf

    make: Any = pandas_udf  # its overloads know functions only by their annotations
    for function in FUNCTIONS.values():
        spark.udf.register(function.name, make(_columnar(function), NAMES[function.gives]))
    return tuple(FUNCTIONS)


def _columnar(function: Function) -> Callable[[pd.Series], pd.Series]:
    """A function over a column of pandas, the form in which Spark passes it to Python."""
    # A column may be of numbers, or of nulls alone.
    return lambda column: function.of(pa.Array.from_pandas(column).cast(pa.string())).to_pandas(
        types_mapper=_EXACT.get
    )
