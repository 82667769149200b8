"""The archive as the jobs read it: records of a span of event time, packed by slice and shard.

    data files by time ─► batches of rows ─► chosen, by slice ─► validated, routed, packed

A file is read once, whatever slices its rows belong to. What the live run refused as late or
repeated is left out for the job that refused it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from app.contract.event_contract import DIGESTS, from_table
from app.engine.messages import MessageKind
from app.engine.routing import Packing, Route, needed, times_of
from app.errors import UserError
from app.read.relations import Warehouse
from app.sources.clocks import Jumps, is_ahead
from app.tables import manifest
from app.tables.data_files import DataFile, data_files
from app.tables.object_store import object_store
from app.tables.state_files import SourcePosition
from app.terminal.moments import instant_of
from app.whatif.replay.choice import EVERYTHING, Choice
from app.whatif.replay.refused import LeftOut
from app.whatif.replay.untimed import Untimed
from state.engine.blobs import SOURCE_COLUMNS

if TYPE_CHECKING:
    from app.config.settings import Settings

Array = np.ndarray
Key = tuple[str, int]
"""Job and shard."""
Blobs = dict[Key, list[Any]]
FIRST_MS, LAST_MS = -(2**63), 2**63 - 1
CLOCK_COLUMN = "ts_wall_ms"
ROWS = 50_000
"""Rows that are packed at once."""
ROWS_WITH_PAYLOAD = 1_000
MORE_ROWS = 2
"""How many times that, at most, where rows of several slices lie side by side."""
_ALWAYS = {*SOURCE_COLUMNS, *DIGESTS, CLOCK_COLUMN, "cluster", "event_type", "ingest_ms", "topic"}
"""Columns that every batch has."""
_NO_EDGES = np.zeros(0, np.int64)
BIN_MS = 1000
"""Where slices may be cut."""


@dataclass(frozen=True)
class EventSpan:
    """Event times from `begin_ms` to before `end_ms` (ms since the epoch)."""

    begin_ms: int = FIRST_MS
    end_ms: int = LAST_MS

    def described(self, filters: Mapping[str, Sequence[str]] | None = None) -> str:
        """The span, and patterns by what they are about, in words."""
        parts = [] if self.begin_ms == FIRST_MS else [f"from {instant_of(self.begin_ms)}"]
        parts += [] if self.end_ms == LAST_MS else [f"before {instant_of(self.end_ms)}"]
        parts += [f"of {name} {', '.join(said)}" for name, said in (filters or {}).items()]
        return " ".join(parts) or "over the whole archive"


WHOLE = EventSpan()


@dataclass(frozen=True)
class Task:
    """What one thread reads at a time: a row group of a file."""

    file: DataFile
    row_group: int


@dataclass(frozen=True)
class RecordCounts:
    """Records by bins of BIN_MS, in order of time."""

    begin_ms: Array
    records: Array
    latest_ms: Array
    """The latest wall time of each bin."""

    @property
    def total(self) -> int:
        """All of them."""
        return int(self.records.sum())


class Archive:
    """One version of the table `events`, and what some jobs read of it."""

    def __init__(
        self,
        settings: Settings,
        routes: Mapping[str, Route],
        span: EventSpan = WHOLE,
        choice: Choice = EVERYTHING,
        version: int | None = None,
        applied: Mapping[str, SourcePosition] | None = None,
    ) -> None:
        """Without `version` the newest one; UserError where there is no archive. `applied`: by job,
        the records that it does not get again."""
        self._settings, self._routes = settings, routes
        self.span, self._choice, self._applied = span, choice, applied or {}
        warehouse = self._warehouse = Warehouse.of(settings.location)
        warehouse.require()
        delta = warehouse.open("events")
        if delta is None:
            raise UserError(
                f"warehouse: the archive of {settings.warehouse} is empty\n"
                "the query archive of a run fills it"
            )
        if version is not None:
            delta.load_as_version(version)
        self.version = int(delta.version())
        self._root = str(warehouse.folder.resolve() / "events") if warehouse.folder else None
        self._location, self._storage = warehouse.location("events"), warehouse.storage_options
        self.shards = settings.model_copy(update=manifest.numbers(warehouse)).shard_count
        self._as_spelled, self._skew_ms = manifest.as_spelled(warehouse), settings.clock_skew_ms
        self._strays: dict[str, frozenset[tuple[str, int]]] = {}
        self._columns, kinds = needed(routes)
        self._kinds = pa.array(kinds)
        self._rows = ROWS_WITH_PAYLOAD if any(r.assembles for r in routes.values()) else ROWS
        self.files = sorted(
            (self._placed(f) for f in data_files(delta, CLOCK_COLUMN) if self._overlaps(f)),
            key=lambda f: (FIRST_MS if f.least is None else f.least, f.path),
        )
        """By time, the earliest first."""

    def _placed(self, file: DataFile) -> DataFile:
        """The file, its least time not behind the place of a record without a wall time: the
        record before that one may be in a file that is read earlier."""
        if not file.untimed or file.least is None:
            return file
        with self.open(file) as opened:
            rows = opened.read([CLOCK_COLUMN, *SOURCE_COLUMNS], use_threads=False)
        places = [self._times(batch).min() for batch in rows.to_batches() if batch.num_rows]
        return replace(file, least=min([file.least, *map(int, places)]))

    def _overlaps(self, file: DataFile) -> bool:
        if file.least is None or file.most is None or file.untimed != 0:
            return True
        return file.most >= self.span.begin_ms and file.least < self.span.end_ms

    @cached_property
    def _left_out(self) -> LeftOut:
        return LeftOut(
            self._warehouse,
            tuple(self._routes),
            self.span.begin_ms,
            self.span.end_ms,
            self._applied,
        )

    @cached_property
    def _untimed(self) -> Untimed:
        return Untimed(self._warehouse)

    def open(self, file: DataFile) -> pq.ParquetFile:
        """A data file; UserError where it is gone."""
        try:
            if self._root is not None:
                return _opened(f"{self._root}/{file.plain_path}")
            system = object_store(self._location, self._storage)
            return _opened(system.open_input_file(file.plain_path))
        except FileNotFoundError:
            raise UserError(
                f"warehouse: {self._location}/{file.plain_path} is gone: the archive has been "
                "compacted since it was opened\nbegin again, into another folder"
            ) from None

    def counted(self, cut_ms: int = 0) -> RecordCounts:
        """Records of the span by time: with filters those that they let pass, else all. A bin
        begins at `cut_ms`."""
        offset_ms = cut_ms % BIN_MS
        counts: dict[int, list[int]] = {}
        with ThreadPoolExecutor() as pool:
            for more in pool.map(lambda file: self._bins(file, offset_ms), self.files):
                for bin_, (records, latest_ms) in more.items():
                    found = counts.setdefault(bin_, [0, FIRST_MS])
                    found[0] += records
                    found[1] = max(found[1], latest_ms)
        bins = sorted(counts)
        return RecordCounts(
            np.array(bins, np.int64) * BIN_MS + offset_ms,
            np.array([counts[b][0] for b in bins], np.int64),
            np.array([counts[b][1] for b in bins], np.int64),
        )

    def _bins(self, file: DataFile, offset_ms: int) -> dict[int, tuple[int, int]]:
        """Records of a file, and their latest time, by bin."""
        columns = [CLOCK_COLUMN, "ingest_ms"]
        if self._choice.filters:
            columns += ["event_type", "cluster", "topic"]
        astray = self._astray(file)
        if astray:
            columns += SOURCE_COLUMNS
        parts = []
        with self.open(file) as opened:
            for group in range(opened.num_row_groups):
                for rows in opened.read_row_group(group, columns, use_threads=False).to_batches():
                    chosen = self._chosen(rows) if self._choice.filters else rows
                    chosen = chosen.filter(chosen.column(CLOCK_COLUMN).is_valid())
                    wall, ingest = (chosen.column(c).to_numpy() for c in columns[:2])
                    far = is_ahead(wall, ingest, self._skew_ms)
                    # what is ahead of the batch that read it moves no clock, unless all is
                    ahead = ingest if far.all() else FIRST_MS
                    moved = np.where(far, ahead, wall)
                    if astray:
                        moved = np.where(_is_in(chosen, astray), FIRST_MS, moved)
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

    def _astray(self, file: DataFile) -> frozenset[tuple[str, int]]:
        """Partition and offset of the records of a file that are far ahead of both neighbours."""
        found = self._strays.get(file.path)
        if found is None:
            found = self._strays[file.path] = self._find_strays(file)
        return found

    def _find_strays(self, file: DataFile) -> frozenset[tuple[str, int]]:
        most_ms = self._settings.max_jump_ms
        if file.least is None or file.most is None or file.most - file.least <= most_ms:
            return frozenset()
        with self.open(file) as opened:
            rows = opened.read([CLOCK_COLUMN, *SOURCE_COLUMNS], use_threads=False)
        rows = rows.cast(_PLACED).drop_null()
        rows = rows.sort_by([(name, "ascending") for name in SOURCE_COLUMNS])
        wall, partition, offset = (column.combine_chunks() for column in rows.columns)
        far = np.flatnonzero(Jumps(most_ms).find(wall.to_numpy(), partition))
        return frozenset((partition[i].as_py(), offset[i].as_py()) for i in far.tolist())

    def tasks(self, file: DataFile, begin_ms: int) -> Iterator[Task]:
        """The row groups of a file that may have records from `begin_ms` on."""
        with self.open(file) as opened:
            about = opened.metadata
            names = [about.schema.column(i).path for i in range(about.num_columns)]
            place = names.index(CLOCK_COLUMN)
            for group in range(about.num_row_groups):
                known = about.row_group(group).column(place).statistics
                if (
                    known is not None
                    and known.has_min_max
                    and known.null_count == 0
                    and (known.max < begin_ms or known.min >= self.span.end_ms)
                ):
                    continue
                yield Task(file, group)

    def read(self, task: Task, edges: Array) -> dict[int, Blobs]:
        """The blobs of a task by slice; slice i is from `edges[i]` to before `edges[i + 1]`."""
        found: dict[int, Blobs] = {}
        for batch in self._batches(task, edges):
            place = np.searchsorted(edges, self._times(batch), side="right") - 1
            place[place > len(edges) - 2] = -1
            packing, refused = self._packing(task.file, batch)
            for number, job, shard, blob in packing.by_slice(place, refused):
                found.setdefault(number, {}).setdefault((job, shard), []).append(blob)
        return found

    def whole(
        self, keep: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    ) -> tuple[dict[Key, list[bytes]], int]:
        """The blobs of all records at once, for small archives, and their latest wall time (ms; 0
        without any). `keep` may leave rows out."""
        blobs: Blobs = {}
        for file in self.files:
            for task in self.tasks(file, FIRST_MS):
                for batch in self._batches(task):
                    packing, refused = self._packing(file, batch if keep is None else keep(batch))
                    _put(blobs, packing.rows(refused))
        latest = self.counted().latest_ms
        plain = {key: [blob.to_pybytes() for blob in parts] for key, parts in blobs.items()}
        return plain, int(latest.max()) if len(latest) else 0

    def _batches(self, task: Task, edges: Array = _NO_EDGES) -> Iterator[pa.RecordBatch]:
        """Rows of the jobs' kinds that are chosen; the more slices they are of, the more at once,
        so that what each slice gets of them is not much less."""
        with self.open(task.file) as opened:
            about = opened.metadata.row_group(task.row_group)
            rows = self._rows * min(_slices_of(about, edges), MORE_ROWS)
            for batch in opened.iter_batches(
                rows,
                [task.row_group],
                _with_values(opened, about, self._columns),
                use_threads=False,
            ):
                chosen = self._chosen(batch)
                if chosen.num_rows:
                    yield chosen

    def _chosen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        mine = pc.is_in(batch.column("event_type"), self._kinds)
        every = mine.true_count == len(mine)
        return self._choice.rows(batch if every else batch.filter(mine))

    def _times(self, batch: pa.RecordBatch) -> Array:
        """The time by which each record has its slice: its wall time, or that of the one before."""
        wall = batch.column(CLOCK_COLUMN)
        if not wall.null_count:
            times: Array = wall.to_numpy()
            return times
        return self._untimed.filled(batch, wall)

    def _packing(self, file: DataFile, batch: pa.RecordBatch) -> tuple[Packing, dict[str, Array]]:
        """Rows of `events`, validated, and by job those that the live run refused (bool)."""
        ingest = batch.column("ingest_ms").to_numpy()
        parsed = from_table(batch, list(self._routes))
        still = is_ahead(times_of(parsed), ingest, self._skew_ms)
        if astray := self._astray(file):
            still |= _is_in(batch, astray)
        packing = Packing(
            parsed,
            batch,
            self._routes,
            self.shards,
            int(ingest.max(initial=0)),
            self._as_spelled,
            still,
        )
        return packing, self._left_out.rows(batch)


_PLACED = pa.schema(
    [(CLOCK_COLUMN, pa.int64()), *zip(SOURCE_COLUMNS, (pa.string(), pa.int64()), strict=True)]
)


def _is_in(batch: pa.RecordBatch, places: frozenset[tuple[str, int]]) -> Array:
    """Which records stand at some places of the source (bool)."""
    partitions, offsets = (batch.column(name) for name in SOURCE_COLUMNS)
    found = np.isin(offsets.to_numpy(), np.array([offset for _, offset in places], np.int64))
    for i in np.flatnonzero(found).tolist():
        found[i] = (partitions[i].as_py(), offsets[i].as_py()) in places
    return np.asarray(found)


def _put(blobs: Blobs, packed: pa.RecordBatch) -> None:
    """Add packed rows to blobs."""
    columns = (packed.column(name) for name in ("kind", "job", "shard", "blob"))
    for kind, job, shard, blob in zip(*columns, strict=True):
        if kind.as_py() == MessageKind.DATA:
            blobs.setdefault((job.as_py(), shard.as_py()), []).append(blob.as_buffer())


def _opened(source: Any) -> pq.ParquetFile:
    return pq.ParquetFile(source, read_dictionary=SOURCE_COLUMNS[:1])


def _slices_of(about: Any, edges: Array) -> int:
    """How many slices the rows of a row group may belong to, as its statistics have it."""
    clock = next(
        column
        for column in map(about.column, range(about.num_columns))
        if column.path_in_schema == CLOCK_COLUMN
    )
    known = clock.statistics
    if known is None or not known.has_min_max:
        return 1
    first, last = np.searchsorted(edges, [known.min, known.max], side="right")
    return int(last - first) + 1


def _with_values(opened: pq.ParquetFile, about: Any, columns: Sequence[str]) -> list[str]:
    """Those of some columns that a row group has, without optional ones in which all is null."""
    there = set(opened.schema_arrow.names)
    found = (about.column(place) for place in range(about.num_columns))
    empty = {
        column.path_in_schema
        for column in found
        if column.statistics is not None and column.statistics.null_count == about.num_rows
    } - _ALWAYS
    return [name for name in columns if name in there - empty]
