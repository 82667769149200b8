"""Events of a recording as one Parquet file, and the files of JSON lines that they were.

A column is a key of the records: integers as they are, everything else as the JSON text of its value;
a key that a record lacks is null. Records have their keys in the order of the columns. `line` is the
whole line of a record that is no such JSON; `written_ms` the time of its file (ms since the epoch);
`at` its place among all. Rows are in an order that compresses well: those of a topic together.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

NOT_KEYS = ("at", "written_ms", "line")


def files(packed: bytes) -> Iterator[tuple[int, bytes]]:
    """Time (ms since the epoch) and content of each file, in the order in which they were written."""
    found = pq.read_table(pa.BufferReader(packed)).sort_by("at")
    written, lines = found["written_ms"], _lines(found)
    for ms in pc.unique(written).to_pylist():
        part = lines.filter(pc.equal(written, ms)).to_pylist()
        yield ms, b"\n".join([*part, b""])


def _lines(found: pa.Table) -> pa.ChunkedArray:
    """The line of each record, without newline."""
    pairs = [
        pc.binary_join_element_wise(f',"{name}":', found[name].cast(pa.string()), "")
        for name in found.column_names
        if name not in NOT_KEYS
    ]
    joined = pc.binary_join_element_wise(*pairs, "}", "", null_handling="replace")
    whole = pc.binary_replace_slice(joined, 0, 1, "{")
    return pc.coalesce(found["line"], whole.cast(pa.binary()))
