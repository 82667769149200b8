"""The archive of the warehouse that a new one continues, before its source goes on.

One version of the table `events` is read in slices of `ingest_ms`: records come in the order in which
they were read, whatever has joined or sorted their files since (`OPTIMIZE`). An offset is the end of
a slice, so a repeated batch has the same records.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from app.contract.event_contract import DIGESTS
from app.errors import UserError
from app.sources.files.slice_plan import UPTO, Piece, SliceReader
from app.sources.pulsar.pulsar_records import finished
from app.sources.python_source import opened
from app.sources.raw import Batches, Raw
from app.tables import checkpoints, succession
from app.tables.data_files import DataFile, data_files
from app.tables.object_store import file_system
from app.tables.small_files import path_in
from state.events import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.location import Location
    from app.config.source import SourceSettings

__all__ = ["finished", "stream"]

SLICE = "path string, after_ms bigint, upto_ms bigint, bytes bigint"
CLOCK = "ingest_ms"
PLACE = ("source_partition", "source_offset")
ROWS, BYTES = 50_000, 4 << 20
"""What a task reads at once, in bytes of the file."""


def stream(
    spark: SparkSession, feed: SourceSettings, warehouse: Location, query: str, ending: bool
) -> Raw:
    """The records of the archive from the query's position on."""
    kept = succession.predecessor(warehouse)
    assert kept is not None
    old = succession.location(warehouse, kept.uri)
    pieces = pieces_of(data_files(succession.archive_of(warehouse, kept), CLOCK))
    planned = checkpoints.offsets(warehouse, query, checkpoints.last_planned(warehouse, query))
    reader = SliceReader(
        pieces,
        ends_of(pieces, feed.max_records_per_trigger, feed.max_bytes_per_trigger),
        spark.sparkContext.defaultParallelism,
        planned.get(UPTO),
    )
    root = path_in(old, "events")
    storage = old.storage() if "://" in root else {}
    return Raw(opened(spark, SLICE, reader), partial(unpack, root, storage))


def pieces_of(files: Sequence[DataFile]) -> list[Piece]:
    """The files of a table; one whose log has no times may have records of any."""
    known = [ms for file in files for ms in (file.least, file.most) if ms is not None]
    least, most = min(known, default=0), max(known, default=0)
    return [
        Piece(
            file.plain_path,
            file.bytes,
            file.rows or 0,
            least if file.least is None else file.least,
            most if file.most is None else file.most,
        )
        for file in files
    ]


def ends_of(pieces: Sequence[Piece], most_rows: int, most_bytes: int) -> list[int]:
    """The ends (ms) of slices with about so many rows or bytes, as if those of a file were spread
    evenly over its time. What was read at once stays together.
    """
    before = np.array([piece.least - 1 for piece in pieces], np.int64)
    until = np.array([piece.most for piece in pieces], np.int64)
    a_ms = np.array([max(p.rows / most_rows, p.bytes / most_bytes) for p in pieces]) / (
        until - before
    )
    edges = np.unique(np.concatenate([before, until]))
    slopes = np.zeros(len(edges))
    np.add.at(slopes, np.searchsorted(edges, before), a_ms)
    np.add.at(slopes, np.searchsorted(edges, until), -a_ms)
    filled = np.concatenate([[0.0], np.cumsum(np.cumsum(slopes)[:-1] * np.diff(edges))])
    cuts = np.interp(np.arange(1, math.ceil(round(filled[-1], 6))), filled, edges).astype(np.int64)
    return sorted({*cuts.tolist(), int(edges[-1])})


def unpack(root: str, storage: dict[str, str], batches: Batches) -> Batches:
    for batch in batches:
        for row in batch.to_pylist():
            yield from _records(root, storage, **row)


def _records(
    root: str, storage: dict[str, str], path: str, after_ms: int, upto_ms: int, bytes: int
) -> Batches:
    """The records of a slice in a file, as columns of the contract."""
    try:
        with pq.ParquetFile(file_system(root, storage).open_input_file(path)) as file:
            there = file.schema_arrow.names
            at_once = max(min(ROWS, BYTES // (bytes + 1)), 1)
            wanted = [n for n in (*SCHEMA.names, *DIGESTS, *PLACE, CLOCK) if n in there]
            for rows in file.iter_batches(at_once, columns=wanted):
                at = rows.column(CLOCK)
                chosen = rows.filter(pc.and_(pc.greater(at, after_ms), pc.less_equal(at, upto_ms)))
                if chosen.num_rows:
                    yield chosen.drop_columns([CLOCK])
    except FileNotFoundError:
        raise UserError(
            f"{succession.OPTION}: {root}/{path} is gone, with records that were not read yet\n"
            "maintenance of that warehouse removes replaced files after maintenance.history_ms: put it"
            " back from a copy, or begin again with another warehouse"
        ) from None
