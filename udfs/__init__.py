"""Column functions over Arrow arrays, and their registration for SQL.

`register` registers them in a Spark session, `register_duckdb` in a DuckDB connection;
docs/functions.md lists them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

# Numba reads its environment once, so before its first import (see udfs/compiled_cache.py).
os.environ.setdefault(
    "NUMBA_CACHE_LOCATOR_CLASSES",
    "udfs.compiled_cache.BySources,UserProvidedCacheLocator,InTreeCacheLocator,"
    "UserWideCacheLocator,ZipCacheLocator",
)
# While it compiles it makes thousands of messages that nobody reads: a tenth of its time for colours.
os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

__all__ = ["register", "register_duckdb"]


def register(spark: SparkSession) -> tuple[str, ...]:
    """Register every function in the SQL of a Spark session; returns their names."""
    from udfs.spark import register as known_to

    return known_to(spark)


def register_duckdb(connection: duckdb.DuckDBPyConnection) -> tuple[str, ...]:
    """Register every function in the SQL of a DuckDB connection; returns their names."""
    from udfs.duckdb import register as known_to

    return known_to(connection)
