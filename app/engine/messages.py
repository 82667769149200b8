"""Rows between the packer, the operator and the committer.

A row has a kind and a blob. Rows of the kind DATA have a name as well: the job that the records are
for, or the table of the rows. Rows of any other kind are on their way to the committer; their name
is empty, so that one group without state passes them on.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import pyarrow as pa

PACKED = "job string, shard int, kind tinyint, ts timestamp, blob binary"
"""Rows from the packer to the operator, which groups them by job and shard."""
TS = pa.timestamp("us", tz="UTC")
PACKED_SCHEMA = pa.schema(
    [
        ("job", pa.string()),
        ("shard", pa.int32()),
        ("kind", pa.int8()),
        ("ts", TS),
        ("blob", pa.binary()),
    ]
)
COMPRESSION, SMALL = "lz4", 1 << 16
"""How rows are compressed that take more than so many bytes; each column of fewer would cost more
than it saves."""
ANSWERS = "table_name string, kind tinyint, blob binary"
"""Rows from the operator to the committer."""


class MessageKind(IntEnum):
    """Kinds of rows."""

    DATA = 0
    """Records for a job, or rows of a table."""
    CLOCK = 1
    """No records: a shard is called, or only the time of the row counts."""
    FILE = 2
    """A data file, written by a task, that becomes part of a table; the blob names both."""
    REFUSED = 3
    """Rows of `quarantine` that need no state."""
    AHEAD = 4
    """The `clock_skew_ms` (ms) that would let records of a feed that is ahead move the clocks."""
    LATE = 5
    """The `idle_advance_ms` (ms) that would have kept records which came too late."""
    ARCHIVED = 6
    """Files of a table of the archive, with what its log needs of them."""
    POLLED = 7
    """The newest time (ms) of records of polls that move no clock."""


class Message(NamedTuple):
    """A row: its kind, its blob, and of DATA the table."""

    kind: MessageKind
    body: Any
    table: str = ""


def control_row(kind: MessageKind, body: bytes, moment: pa.Array | None = None) -> pa.RecordBatch:
    """A row of PACKED for the committer; without a `moment` it moves no clock."""
    return pa.record_batch(
        [
            pa.array([""]),
            pa.array([0], pa.int32()),
            pa.array([kind], pa.int8()),
            pa.nulls(1, TS) if moment is None else moment,
            pa.array([body], pa.binary()),
        ],
        schema=PACKED_SCHEMA,
    )


def encode(rows: pa.Table) -> bytes:
    """Rows as an Arrow IPC stream, the body of DATA, REFUSED and ARCHIVED.

    Many are compressed: the JVM copies a body several times on its way to the committer.
    """
    options = pa.ipc.IpcWriteOptions(compression=COMPRESSION if rows.nbytes > SMALL else None)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_table(rows)
    body: bytes = sink.getvalue().to_pybytes()
    return body
