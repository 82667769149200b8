"""One version of the archive, as a replay reads it: its files, and its records by time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from app.engine.messages import MessageKind
from app.engine.routing import Route
from app.errors import UserError
from app.read.relations import Warehouse
from app.tables import manifest
from app.tables.data_files import DataFile, data_files
from app.whatif.replay.archive_reader import (
    BIN_MS,
    CLOCK_COLUMN,
    ArchiveReader,
    Bins,
    Key,
)
from app.whatif.replay.choice import EVERYTHING, Choice
from app.whatif.replay.event_span import FIRST_MS, WHOLE, EventSpan
from app.whatif.replay.refused import LeftOut
from app.whatif.replay.untimed import Untimed

if TYPE_CHECKING:
    from app.config.settings import Settings

Array = np.ndarray
BinsOf = Callable[[ArchiveReader, Iterable[DataFile], int], Iterator[Bins]]
"""Counts the records of some files in bins that begin at an offset (ms)."""


class RecordCounts(NamedTuple):
    """Records by bins of BIN_MS, in order of time."""

    begin_ms: Array
    records: Array
    latest_ms: Array
    """The latest wall time of each bin."""

    @property
    def total(self) -> int:
        """All of them."""
        return int(self.records.sum())


def bins_in_threads(
    reader: ArchiveReader, files: Iterable[DataFile], offset_ms: int
) -> Iterator[Bins]:
    """The bins of each file, counted by threads."""
    with ThreadPoolExecutor() as pool:
        yield from pool.map(lambda file: reader.bins(file, offset_ms), files)


class Archive:
    """One version of the table `events`, and what some jobs read of it."""

    def __init__(
        self,
        settings: Settings,
        routes: Mapping[str, Route],
        span: EventSpan = WHOLE,
        choice: Choice = EVERYTHING,
        version: int | None = None,
    ) -> None:
        """Without `version` the newest one; UserError where there is no archive."""
        self._settings, self._routes = settings, routes
        self.span, self._choice = span, choice
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
        files = data_files(delta, CLOCK_COLUMN)
        self.files = [file for file in files if self._overlaps(file)]
        timed = [(f.least, f.most) for f in files if f.least is not None and f.most is not None]
        self.held_ms = (min(timed)[0], max(most for _, most in timed)) if timed else None
        """Times of the first and of the last record that there is (ms)."""

    def _overlaps(self, file: DataFile) -> bool:
        if file.least is None or file.most is None or file.untimed != 0:
            return True
        return file.most >= self.span.begin_ms and file.least < self.span.end_ms

    @cached_property
    def reader(self) -> ArchiveReader:
        """What reads its files, also in the tasks of a cluster."""
        settings, warehouse = self._settings, self._warehouse
        folder = warehouse.folder
        return ArchiveReader(
            warehouse.location("events") if folder is None else f"{folder.resolve()}/events",
            {} if folder is not None else dict(warehouse.storage_options),
            dict(self._routes),
            self.span,
            self._choice,
            settings.model_copy(update=manifest.numbers(warehouse)).shard_count,
            settings.clock_skew_ms,
            LeftOut(
                warehouse,
                tuple(self._routes),
                self.span.begin_ms,
                self.span.end_ms,
            ),
            Untimed(warehouse) if any(f.untimed != 0 for f in self.files) else None,
        )

    def counted(self, cut_ms: int = 0, bins_of: BinsOf = bins_in_threads) -> RecordCounts:
        """Records of the span by time: with filters those that they let pass, else all. A bin
        begins at `cut_ms`."""
        offset_ms = cut_ms % BIN_MS
        counts: dict[int, list[int]] = {}
        for more in bins_of(self.reader, self.files, offset_ms):
            for bin_, (records, latest_ms) in more.items():
                total = counts.setdefault(bin_, [0, FIRST_MS])
                total[0] += records
                total[1] = max(total[1], latest_ms)
        bins = sorted(counts)
        return RecordCounts(
            np.array(bins, np.int64) * BIN_MS + offset_ms,
            np.array([counts[b][0] for b in bins], np.int64),
            np.array([counts[b][1] for b in bins], np.int64),
        )

    def whole(
        self, keep: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    ) -> tuple[dict[Key, list[bytes]], int]:
        """The blobs of all records at once, for small archives, and their latest wall time (ms; 0
        without any). `keep` may leave rows out."""
        blobs: dict[Key, list[bytes]] = {}
        for file in self.files:
            for packed in self.reader.packed(file, keep):
                columns = (packed.column(name) for name in ("kind", "job", "shard", "blob"))
                for kind, job, shard, blob in zip(*columns, strict=True):
                    if kind.as_py() == MessageKind.DATA:
                        key = job.as_py(), shard.as_py()
                        blobs.setdefault(key, []).append(blob.as_py())
        latest = self.counted().latest_ms
        return blobs, int(latest.max()) if len(latest) else 0
