"""What Spark itself reaches on the same records: the floors of the other benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from app.sources.worker import settle
from benchmarks.inputs import Input
from benchmarks.stream import Bench, Speed
from benchmarks.trace import COLUMNS
from state.events import KIND_INDEX, SCHEMA
from state.rate_limits.shard import COLUMNS as CARRIED

SHARDS = 16
MISSING = -(2**63)


def parse(bench: Bench, trace: Input, columns: tuple[str, ...] | None = COLUMNS) -> Speed:
    """`from_json` of the records to nothing; the columns that they carry, or the whole contract."""
    raw = (
        bench.spark.readStream.schema("value binary")
        .option("maxFilesPerTrigger", trace.per_trigger)
        .parquet(str(trace.records))
    )
    return bench.to_nothing(parsed(raw, columns), "floor-parse")


def parsed(raw: DataFrame, columns: tuple[str, ...] | None) -> DataFrame:
    """The records of `value` as columns; None = all of the contract."""
    text = F.col("value").cast("string")
    return raw.select(F.from_json(text, schema_of(columns)).alias("e")).select("e.*")


def schema_of(columns: tuple[str, ...] | None) -> StructType:
    """Columns of the contract in Spark's types."""
    fields = list(SCHEMA) if columns is None else [SCHEMA.field(c) for c in columns]
    return from_arrow_schema(pa.schema(fields))


def typed(bench: Bench, trace: Input, files: str = "*.parquet") -> DataFrame:
    """The records as columns of the contract, with their identity."""
    fields = [SCHEMA.field(c) for c in (*COLUMNS, "subscription", "consumer")]
    schema: StructType = from_arrow_schema(
        pa.schema([*fields, ("source_partition", pa.string()), ("source_offset", pa.int64())])
    )
    return (
        bench.spark.readStream.schema(schema)
        .option("pathGlobFilter", files)
        .option("maxFilesPerTrigger", trace.per_trigger)
        .parquet(str(trace.typed))
    )


def identity(bench: Bench, trace: Input, names: bool = False) -> Speed:
    """The columns of rate_limits behind its shuffle, through a `mapInArrow` that does nothing.

    Names go as 64-bit hashes, or with `names` as they are. Rows of other jobs are left out.
    """
    rows = narrow(typed(bench, trace), hashed=not names)
    return behind(bench, rows, f"floor-identity-{'names' if names else 'hashes'}")


def behind(bench: Bench, rows: DataFrame, name: str) -> Speed:
    """Rows with a `shard` behind the shuffle by it, through a `mapInArrow` that does nothing."""

    def nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()  # what Weir's workers are spared, the floor is spared
        yield from batches

    return bench.to_nothing(rows.repartition(2, "shard").mapInArrow(nothing, rows.schema), name)


def narrow(frame: DataFrame, hashed: bool, *more: str) -> DataFrame:
    """The shard of each row, `more` columns, and those that rate_limits carries, without nulls."""
    kinds = F.create_map(*[F.lit(x) for name in READ for x in (name, KIND_INDEX[name])])
    columns: list[Any] = []
    for name in (*CARRIED, "source_partition", "source_offset"):
        text = name != "source_offset" and (
            name == "source_partition" or SCHEMA.field(name).type == pa.string()
        )
        if name == "event_type":
            columns.append(kinds[F.col(name)].cast("int").alias(name))
        elif name not in frame.columns:
            absent = F.lit("") if text and not hashed else F.lit(MISSING)
            columns.append(absent.alias(name))
        elif text:
            value = F.xxhash64(name) if hashed else F.coalesce(F.col(name), F.lit(""))
            columns.append(value.alias(name))
        else:
            columns.append(F.coalesce(F.col(name).cast("long"), F.lit(MISSING)).alias(name))
    shard = F.pmod(F.xxhash64("cluster", "broker"), F.lit(SHARDS)).cast("int").alias("shard")
    return frame.where(F.col("event_type").isin(*READ)).select(shard, *more, *columns)


READ = ("publish", "entry_added")
"""Kinds of the trace that rate_limits reads."""
