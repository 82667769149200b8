"""The files of the archive: tasks write them, the driver adds them to the tables.

A file of a micro-batch that is small waits, as rows of other tables do (`app.tables.gathering`). It
is in the folder of its table, and what gathers in the checkpoint is the list of such files. When
the interval is over they are merged into one file per day, which is committed in their place.
"""

from __future__ import annotations

import json
import math
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from app import folders
from app.archive_names import ARCHIVE
from app.errors import UserError, reason
from app.tables import checkpoints
from app.tables.definitions import TABLES, Table
from app.tables.gathering import MOST_BYTES, Gathered, GatheringWriter
from app.tables.log_properties import STATS
from app.tables.object_store import file_system
from app.tables.small_files import Damaged, path_in

if TYPE_CHECKING:
    from deltalake.transaction import AddAction

    from app.config.location import Location

FILES = pa.schema(
    [("path", pa.string()), ("day", pa.string()), ("bytes", pa.int64()), ("stats", pa.string())]
)
"""Files of a table: the path below its folder, and what its log has of each."""
DAY_MS = 86_400_000
MOST_DAYS = 366
"""Files that are written at once: whoever chooses the times of records chooses their days."""
LARGE_BYTES = 16 << 20
LARGE_ROWS = 100_000
"""From here on a file is not merged with others."""
MOST_ROWS = 250_000
"""Most rows that are merged at once: the driver does it, beside the micro-batches."""
LONGEST_STAT = 200


class ArchiveUnwritable(OSError):
    """A table of the archive cannot be written; the message has its folder and the reason."""


@contextmanager
def _writing(root: str) -> Iterator[None]:
    """ArchiveUnwritable for what goes wrong in the folder of a table."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (OSError, DeltaError) as error:
        number = getattr(error, "errno", None)
        why = os.strerror(number) if number else reason(error)
        raise ArchiveUnwritable(f"{root}: {why}") from error


def write_files(
    table: Table, parts: Sequence[pa.Table], root: str, storage: dict[str, str]
) -> pa.Table:
    """Write rows of a table as one file per partition; returns FILES."""
    rows = pa.concat_tables(parts).unify_dictionaries()
    if not table.partition_by:
        return _files([_written(table, rows, None, root, storage)])
    rows = _by_day(rows)
    date = rows.column(table.partition_by[0])
    days = pc.unique(date).to_pylist()
    return _files(
        _written(
            table,
            (rows.filter(pc.equal(date, pa.scalar(day))) if days[1:] else rows).drop(
                list(table.partition_by)
            ),
            day.isoformat(),
            root,
            storage,
        )
        for day in days
    )


def _files(found: Iterable[tuple[str, str | None, int, str]]) -> pa.Table:
    columns = zip(zip(*found, strict=True), FILES, strict=True)
    return pa.table([pa.array(list(column), field.type) for column, field in columns], schema=FILES)


def _written(
    table: Table, rows: pa.Table, day: str | None, root: str, storage: dict[str, str]
) -> tuple[str, str | None, int, str]:
    """Write rows of one day in the order of the table; returns a row of FILES."""
    rows = rows.take(_sorted(rows, table.sort_by))
    folder = "" if day is None else f"{table.partition_by[0]}={day}/"
    path = f"{folder}part-{uuid.uuid4()}.parquet"
    return path, day, _write(rows, root, path, storage), _stats(rows)


def merged(table: Table, files: pa.Table, root: str) -> tuple[pa.Table, list[str]]:
    """FILES with the small ones of each day merged, and the paths of those that were."""
    every = files.to_pylist()
    rows_of = {file["path"]: json.loads(file["stats"])["numRecords"] for file in every}
    small = [f for f in every if f["bytes"] < LARGE_BYTES and rows_of[f["path"]] < LARGE_ROWS]
    if (
        sum(file["bytes"] for file in small) > MOST_BYTES
        or sum(rows_of[file["path"]] for file in small) > MOST_ROWS
    ):
        return files, []
    by_day: dict[str | None, list[str]] = {}
    for file in small:
        by_day.setdefault(file["day"], []).append(file["path"])
    by_day = {day: paths for day, paths in by_day.items() if paths[1:]}
    gone = [path for paths in by_day.values() for path in paths]
    made = [
        _written(table, _read(root, paths).unify_dictionaries(), day, root, {})
        for day, paths in by_day.items()
    ]
    kept = [tuple(file.values()) for file in every if file["path"] not in gone]
    return _files([*kept, *made]), gone


def _read(root: str, paths: Sequence[str]) -> pa.Table:
    return pa.concat_tables(
        [pq.ParquetFile(Path(root) / path).read() for path in paths], promote_options="default"
    )


def _by_day(rows: pa.Table) -> pa.Table:
    """The rows with a bounded number of days: those of the rarest are filed under their arrival."""
    date = rows.column("event_date").combine_chunks()
    found = pc.value_counts(date)
    if len(found) <= MOST_DAYS:
        return rows
    days, counts = (found.field(i).cast(pa.int32()).to_numpy() for i in (0, 1))
    kept = days[np.lexsort((days, -counts))[: MOST_DAYS - 1]]
    own = date.cast(pa.int32()).to_numpy()
    arrival = rows.column("ingest_ms").to_numpy() // DAY_MS
    filed = np.where(np.isin(own, kept), own, arrival).astype(np.int32)
    at = rows.schema.get_field_index("event_date")
    return rows.set_column(at, "event_date", pa.array(filed, pa.date32()))


def _sorted(rows: pa.Table, keys: Sequence[str]) -> pa.Array:
    """Order of the rows by the table's sort columns, text by its dictionary's order."""
    levels = []
    for name in keys:
        column = rows.column(name).combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0) if column.num_chunks else pa.nulls(0)
        if pa.types.is_string(column.type):
            column = column.dictionary_encode()
        if pa.types.is_dictionary(column.type):
            rank = np.empty(len(column.dictionary) + 1, np.int64)
            rank[pc.sort_indices(column.dictionary).to_numpy()] = np.arange(len(column.dictionary))
            rank[-1] = -1
            codes = column.indices.fill_null(len(column.dictionary)).to_numpy(zero_copy_only=False)
            levels.append(rank[codes])
        else:
            levels.append(column.fill_null(-1).to_numpy(zero_copy_only=False))
    return pa.array(np.lexsort(levels[::-1]))


def _write(rows: pa.Table, root: str, path: str, storage: dict[str, str]) -> int:
    # Integers are mostly distinct: as differences they take a third less than by a dictionary.
    integers = [f.name for f in rows.schema if pa.types.is_integer(f.type)]
    options: dict[str, Any] = {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": [name for name in rows.column_names if name not in integers],
        "column_encoding": dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
    }
    file = Path(root) / path
    with _writing(root):
        if "://" in root:
            with file_system(root, storage).open_output_stream(path) as sink:
                pq.write_table(rows, sink, **options)
                return int(sink.tell())
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(rows, file, **options)
        except OSError:
            file.unlink(missing_ok=True)  # half a file takes room where there is none
            raise
        return file.stat().st_size


def _stats(rows: pa.Table) -> str:
    """Delta statistics of the columns that look-ups prune by."""
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in STATS:
        if name not in rows.column_names:
            continue
        column = rows.column(name)
        nulls[name] = column.null_count
        if pa.types.is_dictionary(column.type):
            column = column.combine_chunks()
            column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
            used = pc.unique(column.indices).drop_null()
            column = column.dictionary.take(used)
        found = pc.min_max(column).as_py()
        if found["min"] is None or max(len(str(v)) for v in found.values()) > LONGEST_STAT:
            continue
        least[name], most[name] = found["min"], found["max"]
    return json.dumps(
        {"numRecords": rows.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}
    )


def actions(table: Table, files: pa.Table) -> list[AddAction]:
    """FILES as actions of the table's log."""
    from deltalake.transaction import AddAction

    now = time.time_ns() // 1_000_000
    return [
        AddAction(
            file["path"],
            file["bytes"],
            {table.partition_by[0]: file["day"]} if table.partition_by else {},
            now,
            True,
            file["stats"],
        )
        for file in files.to_pylist()
    ]


class ArchiveWriter(GatheringWriter):
    """Adds files to the tables of the archive at once, or gathers them until they are due."""

    def __init__(
        self,
        warehouse: Location,
        query: str,
        history_ms: int,
        intervals_ms: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(warehouse, query, history_ms, intervals_ms)
        self._merged: list[str] = []
        """Files whose rows are in a merged one."""

    def add(self, name: str, files: pa.Table, batch: int) -> None:
        """Add FILES of a batch to a table, or gather them for a later commit."""
        waits = bool(self._gathered.batches(name))
        if not self._interval_ms(name) and not waits:
            self.add_files(name, actions(TABLES[name], files), batch)
            return
        self._gather(name, files, batch, pc.sum(files.column("bytes")).as_py())
        if not self._interval_ms(name):
            self.commit([name])  # a commit of this batch alone would leave the others out

    def add_files(self, name: str, actions: list[Any], batch: int) -> None:
        """Add files to a table, unless the table has the batch."""
        with _writing(path_in(self._warehouse, name)):
            super().add_files(name, actions, batch)

    def _append_parts(self, name: str, parts: Sequence[pa.Table], batch: int) -> None:
        """Commit gathered FILES, merged."""
        root, listed = path_in(self._warehouse, name), pa.concat_tables(parts)
        for file in _gone(root, listed):
            raise Damaged(file, f"is gone or changed, with rows of {name} that no commit has")
        files, gone = merged(TABLES[name], listed, root)
        self.add_files(name, actions(TABLES[name], files), batch)
        self._merged += [f"{root}/{path}" for path in gone]

    def commit(self, names: Sequence[str]) -> None:
        """Commit the gathered files of these tables."""
        super().commit(names)
        while self._merged:
            Path(self._merged.pop()).unlink(missing_ok=True)


def lost(warehouse: Location, name: str, batch: int) -> str | None:
    """A file of a table that waits since a batch, and is gone or changed; None if all are there."""
    parts = Gathered(warehouse, ARCHIVE).parts(name, [batch])
    return next((gone for part in parts for gone in _gone(path_in(warehouse, name), part)), None)


def _gone(root: str, files: pa.Table) -> Iterator[str]:
    """FILES that are gone or changed."""
    for file in files.to_pylist():
        there = folders.look(Path(root, file["path"]))
        if there is None or there.st_size != file["bytes"]:
            yield str(Path(root, file["path"]))


def awaited(warehouse: Location, name: str) -> tuple[float, set[str]]:
    """Which files of a table in a local warehouse a commit may still name: those written since a time
    (s since the epoch, by the clock of the file system), and those of some paths.
    """
    since_s, paths = math.inf, set[str]()
    try:
        for query in {*checkpoints.found(warehouse), ARCHIVE}:
            gathered = Gathered(warehouse, query)
            batches = gathered.batches(name)
            begun = [Path(gathered.path(name, batch)) for batch in batches]
            planned = checkpoints.planned(warehouse, query)
            if planned is not None:
                log = checkpoints.logs_path(warehouse, query)
                begun.append(Path(log, "offsets", str(planned)))
            since_s = min([since_s, *(file.changed_ns / 1e9 for file in folders.listed(begun))])
            if query == ARCHIVE:
                for part in gathered.parts(name, batches):
                    paths.update(part.column("path").to_pylist())
    except UserError:  # of what is damaged, or was committed just now
        return -math.inf, paths
    return since_s, paths
