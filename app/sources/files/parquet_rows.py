"""The row number in its Parquet file of each row, where Spark does not provide it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from app.sources.files.open_file import open_file
from app.sources.raw import Batches


def numbered(batches: Batches, names: Sequence[str]) -> Batches:
    """Batches of (value, file path, start of the file's block) as (value, file name, row).

    The rows of a block come together and in their order. A block holds the row groups whose
    middle lies in it (as Parquet's own readers share them out), so the footer gives the number
    of rows before.
    """
    place: tuple[str, int] | None = None
    row = 0
    for batch in batches:
        value, paths, starts = batch.columns
        codes, starts = paths.dictionary_encode(), starts.to_numpy()
        changes = (np.diff(codes.indices.to_numpy()) != 0) | (np.diff(starts) != 0)
        cuts = [0, *(np.flatnonzero(changes) + 1).tolist(), batch.num_rows]
        for begin, end in pairwise(cuts):
            if begin == end:
                continue
            path, start = paths[begin].as_py(), int(starts[begin])
            if place != (path, start):
                place, row = (path, start), _rows_before(path, start)
            count = end - begin
            name = pa.repeat(pa.scalar(unquote(path).rpartition("/")[2]), count)
            rows = pa.array(np.arange(row, row + count, dtype=np.int64))
            row += count
            yield pa.record_batch([value.slice(begin, count), name, rows], list(names))


def _rows_before(path: str, start: int) -> int:
    """The number of rows of the file in row groups of earlier blocks."""
    if start == 0:
        return 0
    with open_file(unquote(path)) as file:
        footer = pq.ParquetFile(file).metadata
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    return sum(group.num_rows for group in groups if _middle(group) < start)


def _middle(group: pq.RowGroupMetaData) -> int:
    columns = [group.column(i) for i in range(group.num_columns)]
    first = columns[0]
    begin = first.dictionary_page_offset or first.data_page_offset
    return int(begin + sum(column.total_compressed_size for column in columns) // 2)
