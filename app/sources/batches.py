"""Regroups Arrow batches to a size that suits the stage.

Spark has one limit of rows per Arrow batch for all Python stages. The stateful operator takes one
row per blob and needs a small limit (`app.run.session`); parsing works best on many records at
once.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

ROWS = 50_000
BYTES = 32 << 20


def regrouped(
    batches: Iterator[pa.RecordBatch], rows: int = ROWS, most_bytes: int = BYTES
) -> Iterator[pa.RecordBatch]:
    """The rows in batches of up to `rows` rows and about `most_bytes` bytes, in their order.

    A larger batch passes unchanged; batches with other columns or metadata are not joined.
    """
    held: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        more = batch.nbytes
        full = count + batch.num_rows > rows or size + more > most_bytes
        if held and (full or not held[0].schema.equals(batch.schema, check_metadata=True)):
            yield _joined(held)
            held, count, size = [], 0, 0
        held.append(batch)
        count, size = count + batch.num_rows, size + more
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
