"""Reads the files of an archive as the jobs do: rows that are chosen, validated, routed, packed.

    row group ─► batches of rows ─► chosen, by slice ─► validated, routed, packed

A reader travels to the tasks that use it. What the live run refused as late or repeated is left out
for the job that refused it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from app.contract.event_contract import DIGESTS, from_table
from app.engine.routing import Packing, Route, needed, times_of
from app.errors import UserError
from app.sources.clocks import is_ahead
from app.tables.data_files import DataFile
from app.tables.object_store import file_system
from app.whatif.replay.choice import Choice
from app.whatif.replay.event_span import FIRST_MS, EventSpan
from app.whatif.replay.refused import LeftOut
from app.whatif.replay.untimed import Untimed
from state.engine.blobs import SOURCE_COLUMNS

Array = np.ndarray
Key = tuple[str, int]
"""Job and shard."""
Bins = dict[int, tuple[int, int]]
"""By number of a bin its records, and the latest time (ms) to which they move the clock."""
CLOCK_COLUMN = "ts_wall_ms"
ROWS = 50_000
"""Rows that are packed at once."""
ROWS_WITH_PAYLOAD = 1_000
MORE_ROWS = 2
"""How many times that, at most, where rows of several slices lie side by side."""
_ALWAYS = {*SOURCE_COLUMNS, *DIGESTS, CLOCK_COLUMN, "cluster", "event_type", "ingest_ms", "topic"}
"""Columns that every batch has."""
_NO_EDGES = np.zeros(0, np.int64)
EVERY_GROUP = slice(None)
BIN_MS = 1000
"""Where slices may be cut."""


class RowGroup(NamedTuple):
    """What is read at a time."""

    file: DataFile
    number: int
    rows: int


class PackedBlob(NamedTuple):
    """Records of a slice for a shard of a job."""

    job: str
    shard: int
    slice: int
    blob: Any


@dataclass
class ArchiveReader:
    """Reads the data files of one version of an archive."""

    location: str
    """Folder or address of the table."""
    storage: dict[str, str]
    routes: Mapping[str, Route]
    span: EventSpan
    choice: Choice
    shards: int
    skew_ms: int
    left_out: LeftOut
    untimed: Untimed | None
    """The times of records without a wall time; None where every record has one."""

    def __post_init__(self) -> None:
        self._columns, self._kinds = needed(self.routes)
        assembles = any(route.assembles for route in self.routes.values())
        self._rows = ROWS_WITH_PAYLOAD if assembles else ROWS

    def open(self, file: DataFile) -> pq.ParquetFile:
        """A data file; UserError where it is gone."""
        try:
            if "://" not in self.location:
                return _opened(f"{self.location}/{file.plain_path}")
            system = file_system(self.location, self.storage)
            return _opened(system.open_input_file(file.plain_path))
        except FileNotFoundError:
            raise UserError(
                f"warehouse: {self.location}/{file.plain_path} is gone: the archive has been "
                "compacted since it was opened\nbegin again, into another folder"
            ) from None

    def bins(self, file: DataFile, offset_ms: int, groups: slice = EVERY_GROUP) -> Bins:
        """The records of some row groups of a file in bins that begin at an offset (ms)."""
        columns = [CLOCK_COLUMN, "ingest_ms"]
        if self.choice.filters:
            columns += ["event_type", "cluster", "topic"]
        parts = []
        with self.open(file) as opened:
            for group in range(opened.num_row_groups)[groups]:
                for rows in opened.read_row_group(group, columns, use_threads=False).to_batches():
                    chosen = self._chosen(rows) if self.choice.filters else rows
                    chosen = chosen.filter(chosen.column(CLOCK_COLUMN).is_valid())
                    wall, ingest = (chosen.column(c).to_numpy() for c in columns[:2])
                    far = is_ahead(wall, ingest, self.skew_ms)
                    # what is ahead of the batch that read it moves no clock, unless all is
                    ahead = ingest if far.all() else FIRST_MS
                    moved = np.where(far, ahead, wall)
                    parts.append(np.stack([wall, moved]))
        times, moved = np.concatenate(parts, axis=1) if parts else np.zeros((2, 0), np.int64)
        inside = (times >= self.span.begin_ms) & (times < self.span.end_ms)
        times, moved = times[inside], moved[inside]
        bins = (
            pa.table({"bin": (times - offset_ms) // BIN_MS, "ms": moved})
            .group_by("bin", use_threads=False)
            .aggregate([("ms", "count"), ("ms", "max")])
        )
        columns_of = (bins.column(name).to_pylist() for name in ("bin", "ms_count", "ms_max"))
        return {
            bin_: (records, latest_ms) for bin_, records, latest_ms in zip(*columns_of, strict=True)
        }

    def row_groups(self, file: DataFile) -> list[RowGroup]:
        """The row groups of a file that may have records of the span."""
        with self.open(file) as opened:
            every = map(opened.metadata.row_group, range(opened.metadata.num_row_groups))
            return [
                RowGroup(file, number, about.num_rows)
                for number, about in enumerate(every)
                if self._may_have(about)
            ]

    def _may_have(self, about: Any) -> bool:
        clock = _statistics(about).get(CLOCK_COLUMN)
        return (
            clock is None
            or not clock.has_min_max
            or clock.null_count != 0
            or (clock.max >= self.span.begin_ms and clock.min < self.span.end_ms)
        )

    def read(self, group: RowGroup, edges: Array) -> Iterator[PackedBlob]:
        """The records of a row group, packed; slice i is from `edges[i]` to before `edges[i + 1]`."""
        for batch in self._batches(group, edges):
            place = np.searchsorted(edges, self._times(batch), side="right") - 1
            place[place > len(edges) - 2] = -1
            packing, refused = self._packing(group.file, batch)
            for number, job, shard, blob in packing.by_slice(place, refused):
                yield PackedBlob(job, shard, number, blob)

    def packed(
        self, file: DataFile, keep: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The records of a file as rows of PACKED; `keep` may leave rows of `events` out."""
        for group in self.row_groups(file):
            for batch in self._batches(group):
                packing, refused = self._packing(file, batch if keep is None else keep(batch))
                yield packing.rows(refused)

    def _batches(self, group: RowGroup, edges: Array = _NO_EDGES) -> Iterator[pa.RecordBatch]:
        """Rows of the jobs' kinds that are chosen; the more slices they are of, the more at once,
        so that what each slice gets of them is not much less."""
        with self.open(group.file) as opened:
            about = opened.metadata.row_group(group.number)
            rows = self._rows * min(_slices_of(about, edges), MORE_ROWS)
            for batch in opened.iter_batches(
                rows,
                [group.number],
                _with_values(opened, about, self._columns),
                use_threads=False,
            ):
                chosen = self._chosen(batch)
                if chosen.num_rows:
                    yield chosen

    def _chosen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        mine = pc.is_in(batch.column("event_type"), pa.array(self._kinds))
        every = mine.true_count == len(mine)
        return self.choice.rows(batch if every else batch.filter(mine))

    def _times(self, batch: pa.RecordBatch) -> Array:
        """The time by which each record has its slice: its wall time, or that of the one before."""
        wall = batch.column(CLOCK_COLUMN)
        if self.untimed is None or not wall.null_count:
            times: Array = wall.to_numpy()
            return times
        return self.untimed.filled(batch, wall)

    def _packing(self, file: DataFile, batch: pa.RecordBatch) -> tuple[Packing, dict[str, Array]]:
        """Rows of `events`, validated, and by job those that the live run refused (bool)."""
        ingest = batch.column("ingest_ms").to_numpy()
        parsed = from_table(batch, list(self.routes))
        still = is_ahead(times_of(parsed), ingest, self.skew_ms)
        packing = Packing(
            parsed,
            batch,
            self.routes,
            self.shards,
            int(ingest.max(initial=0)),
            still,
        )
        return packing, self.left_out.rows(batch)


def _opened(source: Any) -> pq.ParquetFile:
    return pq.ParquetFile(source, read_dictionary=SOURCE_COLUMNS[:1])


def _statistics(about: Any) -> dict[str, Any]:
    """The statistics of the columns of a row group, None where it has none."""
    columns = map(about.column, range(about.num_columns))
    return {column.path_in_schema: column.statistics for column in columns}


def _slices_of(about: Any, edges: Array) -> int:
    """How many slices the rows of a row group may belong to, as its statistics have it."""
    clock = _statistics(about)[CLOCK_COLUMN]
    if clock is None or not clock.has_min_max:
        return 1
    first, last = np.searchsorted(edges, [clock.min, clock.max], side="right")
    return int(last - first) + 1


def _with_values(opened: pq.ParquetFile, about: Any, columns: Sequence[str]) -> list[str]:
    """Those of some columns that a row group has, without optional ones in which all is null."""
    there = set(opened.schema_arrow.names)
    empty = {
        name
        for name, statistics in _statistics(about).items()
        if statistics is not None and statistics.null_count == about.num_rows
    } - _ALWAYS
    return [name for name in columns if name in there - empty]
