"""A Delta table: with JSON records, or in the layout of the event contract.

A table with a column `value` (binary or string) has records. Any other table must have columns of
the contract, such as Weir's own archive. A row is identified by `source_partition` and
`source_offset`, or by `topic`, `partition` and `offset` as Kafka names them: a file and the place in
it would be others after a compaction.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from app.errors import UserError, reason
from app.sources.raw import Raw
from state.events import COMMON, SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming import DataStreamReader

    from app.config.location import Location
    from app.config.source import SourceSettings

NAMES = ("value", "source_partition", "source_offset")


def check(feed: SourceSettings, warehouse: Location) -> None:
    """UserError for a path without a Delta table, or a table without records."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    path = str(feed.path)
    try:
        table = DeltaTable(path, storage_options=warehouse.storage())
        columns = {field.name for field in table.schema().fields}
    except (TableNotFoundError, FileNotFoundError):
        raise UserError(
            f"source.path: {path} is not a Delta table\n"
            "source.format delta reads one; files of JSON lines are read by source.format files"
        ) from None
    except (DeltaError, OSError) as error:
        raise UserError(
            f"source.path: cannot open the Delta table {path}: {reason(error)}"
        ) from error
    missing = [name for name in COMMON if name not in columns]
    if "value" not in columns and missing:
        raise UserError(
            f"source.path: the table {path} has no records\n"
            f"it needs a column value, or those of the event contract (without: {missing[0]})"
        )
    if _identity(columns) is None:
        raise UserError(
            f"source.path: nothing in the table {path} identifies a record\n"
            "it needs the columns source_partition and source_offset, or beside value those of Kafka:"
            " topic, partition and offset"
        )


def read(reader: DataStreamReader, feed: SourceSettings, warehouse: Location) -> Raw:
    """The rows of the table at `source.path` as records."""
    from pyspark.sql.functions import col, concat_ws

    table = reader.format("delta").options(**_admission(feed, warehouse), **feed.reader_options())
    frame = table.load(str(feed.path))
    identity = _identity(frame.columns)
    assert identity is not None  # `check` has seen it
    *partition, offset = identity
    return Raw(
        frame.select(
            _value(frame).alias(NAMES[0]),
            concat_ws("-", *partition).alias(NAMES[1]),
            col(offset).cast("bigint").alias(NAMES[2]),
        )
    )


def _admission(feed: SourceSettings, warehouse: Location) -> dict[str, str]:
    """The default limit of a trigger: bytes of data files with about as many records as configured."""
    from deltalake import DeltaTable

    if "maxbytespertrigger" in {key.lower() for key in feed.options}:
        return {}
    files = pa.table(
        DeltaTable(str(feed.path), storage_options=warehouse.storage()).get_add_actions(
            flatten=True
        )
    )
    size = pc.sum(files["size_bytes"]).as_py() or 0
    rows = pc.sum(files["num_records"]).as_py() or 0 if "num_records" in files.column_names else 0
    most = feed.max_bytes_per_trigger
    if rows:
        most = min(most, max(size * feed.max_records_per_trigger // rows, 1))
    return {"maxBytesPerTrigger": str(most)}


def _value(frame: DataFrame) -> Column:
    from pyspark.sql.functions import col, struct, to_json

    if "value" in frame.columns:
        return col("value").cast("binary")
    carried = [name for name in SCHEMA.names if name in frame.columns]
    return to_json(struct(*carried)).cast("binary")  # binary columns become base64


def _identity(columns: Collection[str]) -> tuple[str, ...] | None:
    """The columns that identify a row, its offset last; None where the table has none."""
    own, of_kafka = ("source_partition", "source_offset"), ("topic", "partition", "offset")
    if {*own} <= {*columns}:
        return own
    return of_kafka if {"value", *of_kafka} <= {*columns} else None
