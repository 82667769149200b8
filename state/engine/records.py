"""Records of one shard as columns of integers; names are integers of the shard's `Names`.

A blob is what the router ships: one Arrow IPC stream with the columns of a job, string columns
dictionary-encoded. Null is NULL in numeric columns and NONE in columns of names; `has_seq` keeps
the one null that counts and whose column may hold every 64-bit value.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from state.engine.names import NONE, Names
from udfs.arrow import integers

Array = np.ndarray
NULL = np.int64(-(2**63))
Records = dict[str, Array]

SOURCE_COLUMNS = ("source_partition", "source_offset")
FLAGS = ("has_seq", "home", "held")
"""`home`: 0 on the copies of a record that other shards report; `held`: 1 on a record that looks
too late by one clock and not by the other, until the cause is known."""
INGEST_KEY = b"ingest_ms"


def read_blob(
    blob: bytes, names: Names, columns: Sequence[str], payloads: list[pa.Array] | None = None
) -> Records:
    """Columns of a blob with its names interned; `event_type` is the position of its kind.

    `payloads` takes the blob's payloads, if it has any (null where a record has none).
    """
    with pa.ipc.open_stream(blob) as reader:
        batch = reader.read_all()
    ingest = int((batch.schema.metadata or {}).get(INGEST_KEY, b"0"))
    if payloads is not None:
        payloads.append(
            batch.column("payload").combine_chunks() if "payload" in batch.schema.names
            else pa.nulls(batch.num_rows, pa.binary())
        )
    records: Records = {}
    for name in (*columns, *SOURCE_COLUMNS):
        records[name] = _column(batch.column(name), names)
    seq = batch.column("seq")
    records["has_seq"] = (
        seq.is_valid().to_numpy().astype(np.int8)
        if seq.null_count
        else np.ones(batch.num_rows, np.int8)
    )
    records["home"] = batch.column("home").to_numpy().astype(np.int8)
    records["held"] = np.zeros(batch.num_rows, np.int8)
    records["ingest_ms"] = np.full(batch.num_rows, ingest, np.int64)
    return records


def _column(column: pa.ChunkedArray, names: Names) -> Array:
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if pa.types.is_dictionary(array.type):
        values = array.dictionary
        known = names.intern(values if values.type == pa.string() else values.cast(pa.string()))
        return np.append(known, NONE)[integers(array.indices, len(known))]
    return integers(array, NULL)


def concat(parts: Sequence[Records]) -> Records:
    """Rows of several sets of records, one after the other."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def take(records: Records, rows: Array) -> Records:
    """The rows at these positions (or where a mask holds), in this order.

    A stretch of neighbours is a view: the columns of both are then the same memory.
    """
    if rows.dtype == np.bool_:
        rows = np.flatnonzero(rows)
    if len(rows) and rows[-1] - rows[0] == len(rows) - 1 and bool((np.diff(rows) == 1).all()):
        return {name: column[rows[0] : rows[-1] + 1] for name, column in records.items()}
    return {name: column[rows] for name, column in records.items()}


def length(records: Records) -> int:
    """Number of rows."""
    return len(records["cluster"])


def empty(columns: Sequence[str]) -> Records:
    """No rows."""
    fields = (*columns, *SOURCE_COLUMNS, "ingest_ms")
    records: Records = {name: np.zeros(0, np.int64) for name in fields}
    records |= {name: np.zeros(0, np.int8) for name in FLAGS}
    return records
