"""Commits rows of several micro-batches together, for tables whose readers can wait.

Every commit adds a version and a file to its table, however few its rows are. A table has an
interval: its own (`commit_interval_ms` of its declaration) or the configured one. With 0 each
micro-batch commits its rows. Otherwise a batch writes its rows to `gathered/TABLE/BATCH.arrow` in
the query's checkpoint, and they are committed together when the oldest of them have waited for the
interval.

A killed run loses and repeats no row:

* A batch ends after its files are on disk, so each row of an ended batch is in the table or in a
  file.
* A commit carries the number of its newest batch; files of this batch and of earlier ones are not
  committed again.
* Files are removed after the commit is on disk.
* The next start commits the remaining rows. It removes files of a batch that has not ended: the
  batch is repeated.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING

import pyarrow as pa

from app import folders
from app.errors import reason
from app.tables import checkpoints, durable
from app.tables.checkpoints import GatheredFile
from app.tables.commit import Writer
from app.tables.definitions import TABLES
from app.tables.shape import shaped
from app.tables.small_files import Damaged, local_path, path_in

if TYPE_CHECKING:
    from app.config.location import Location

FOLDER = "gathered"
MOST_BYTES = 32 << 20
"""Rows of a table that exceed this (bytes) are committed before the end of the interval."""


def possible(warehouse: Location) -> bool:
    """Whether rows can gather. In an object store a file costs as much as a commit."""
    return local_path(warehouse.uri) is not None


class Gathered:
    """The files of a query's rows that are not yet committed."""

    def __init__(self, warehouse: Location, query: str) -> None:
        """Requires a warehouse in a local folder."""
        self._folder = Path(checkpoints.location(warehouse, query)) / FOLDER

    def tables(self) -> list[str]:
        """Tables with gathered rows, now or earlier."""
        return folders.names(self._folder)

    def batches(self, table: str) -> list[int]:
        """Batches with rows of a table, in order."""
        found = folders.matching(self._folder / table, "[0-9]*.arrow")
        return sorted(int(path.stem) for path in found)

    def first(self) -> int | None:
        """The oldest batch with rows of any table; None if there are none."""
        return min((batch for name in self.tables() for batch in self.batches(name)), default=None)

    def put(self, table: str, rows: pa.Table, batch: int) -> GatheredFile:
        """Write the rows of a batch; a repeated batch replaces its rows."""
        out = pa.BufferOutputStream()
        with pa.ipc.new_file(out, rows.schema) as writer:
            writer.write_table(rows)
        found = out.getvalue()
        with durable.replacing(self._file(table, batch)) as unfinished:
            folders.put(unfinished, found)
        return GatheredFile(batch, len(found), zlib.crc32(found))

    def parts(self, table: str, batches: Sequence[int]) -> list[pa.Table]:
        """The rows of some batches."""
        return [self._rows(self._file(table, batch)) for batch in batches]

    def problem(self, table: str, wanted: GatheredFile) -> str | None:
        """What is wrong with a file that was written for a batch."""
        try:
            found = self._file(table, wanted.batch).read_bytes()
        except FileNotFoundError:
            return f"is gone, with rows of {table} that no commit has"
        if (len(found), zlib.crc32(found)) != (wanted.bytes, wanted.crc32):
            return f"is not as it was written, with rows of {table}"
        return None

    def path(self, table: str, batch: int) -> str:
        """Path of the file with the rows of a batch."""
        return str(self._file(table, batch))

    def _rows(self, file: Path) -> pa.Table:
        try:
            return pa.ipc.open_file(file.read_bytes()).read_all()
        except (OSError, pa.ArrowException) as error:
            raise Damaged(str(file), f"is damaged ({reason(error)})") from None

    def remove(self, table: str, batches: Sequence[int]) -> None:
        """Remove the rows of some batches."""
        for batch in batches:
            self._file(table, batch).unlink(missing_ok=True)

    def _file(self, table: str, batch: int) -> Path:
        return self._folder / table / f"{batch}.arrow"


class GatheringWriter(Writer):
    """Appends rows at once, or gathers them until they are due. `commit_due` is called
    periodically, on any thread.
    """

    def __init__(
        self,
        warehouse: Location,
        query: str,
        history_ms: int,
        intervals_ms: Mapping[str, int] | None = None,
    ) -> None:
        """`intervals_ms` are the commit intervals of tables in place of those that the definitions
        have.
        """
        super().__init__(warehouse, query, history_ms)
        self._gathered = Gathered(warehouse, query)
        self._intervals_ms = intervals_ms or {}
        self._since_s: dict[str, float] = {}
        self._bytes: dict[str, int] = {}
        before = self._record.gathered if self._record else {}
        self._files = {(name, file.batch): file for name, files in before.items() for file in files}
        """The files that were written, by table and batch."""
        self._lock = RLock()

    def append(self, name: str, rows: pa.Table, batch: int) -> None:
        """Append the rows of a batch to a table, or gather them for a later commit."""
        if not (self._interval_ms(name) and rows.num_rows):
            super().append(name, rows, batch)
            return
        self._gather(name, rows, batch, rows.nbytes)

    def _gather(self, name: str, rows: pa.Table, batch: int, size: int) -> None:
        self._files[name, batch] = self._gathered.put(name, rows, batch)
        self._bytes[name] = self._bytes.get(name, 0) + size
        self._since_s.setdefault(name, time.monotonic())

    def record(self, batch: int | None) -> None:
        """Record the commits of a batch, and the files that wait."""
        with self._lock:
            super().record(batch)

    def _waiting(self) -> dict[str, list[GatheredFile]]:
        """Files whose rows wait for a commit, by table."""
        found: dict[str, list[GatheredFile]] = {}
        for (name, batch), file in sorted(self._files.copy().items()):
            commit = self._commits.get(name)
            if commit is None or commit.application != self.application or commit.batch < batch:
                found.setdefault(name, []).append(file)
        return found

    def commit_due(self) -> None:
        """Commit tables whose rows have waited for their interval or are large.

        Tables with the same or a shorter interval are committed with them, because readers join
        tables.
        """
        now_s, waiting = time.monotonic(), dict(self._since_s)
        longest_ms = max(
            (
                self._interval_ms(name)
                for name, since_s in waiting.items()
                if 1000 * (now_s - since_s) >= self._interval_ms(name)
                or self._bytes.get(name, 0) >= MOST_BYTES
            ),
            default=None,
        )
        if longest_ms is not None:
            self.commit([name for name in waiting if self._interval_ms(name) <= longest_ms])

    def commit(self, names: Sequence[str]) -> None:
        """Commit the gathered rows of these tables."""
        with self._lock:
            for name in names:  # rows of a batch at work may come meanwhile: they wait anew
                self._since_s.pop(name, None)
                self._bytes.pop(name, None)
            try:
                done = {name: self._append_gathered(name) for name in names}
                self.settle()
                for name, batches in done.items():
                    self._gathered.remove(name, batches)
                    for batch in batches:
                        self._files.pop((name, batch), None)
            except BaseException:
                for name in names:
                    self._since_s.setdefault(name, time.monotonic())
                raise

    def require_tables(self) -> None:
        """Damaged if a table of the query is gone."""
        for name in {**self._commits, **self._open}:
            path = path_in(self._warehouse, name)
            if folders.look(Path(path, "_delta_log")) is None:
                raise Damaged(path, f"is gone, a table of the query {self.query}")

    def commit_all(self) -> None:
        """Commit all gathered rows."""
        waiting = [name for name in self._gathered.tables() if self._gathered.batches(name)]
        if waiting:
            self.commit(waiting)

    def _interval_ms(self, name: str) -> int:
        own = TABLES[name].commit_interval_ms
        return self._intervals_ms.get(name, own)

    def _append_parts(self, name: str, parts: Sequence[pa.Table], batch: int) -> None:
        """Commit gathered rows. Those of an earlier release get the missing columns."""
        rows = pa.concat_tables(shaped(part, TABLES[name], {}) for part in parts)
        super().append(name, rows, batch)

    def _append_gathered(self, name: str) -> list[int]:
        """Commit the gathered rows of a table; returns the batches that it now has."""
        batches = self._gathered.batches(name)
        newest = self.newest(self._table(name))
        rest = [batch for batch in batches if batch > newest]
        if rest:
            self._append_parts(name, self._gathered.parts(name, rest), rest[-1])
        elif batches:  # of a commit that was interrupted before it was recorded
            self._note(name, newest)
        if batches:
            # The last batch alone would not bring these rows back.
            last = self._commits[name]
            self._commits[name] = replace(last, before=last.batch - 1)
        return batches


def commit_left(
    warehouse: Location,
    query: str,
    history_ms: int,
    writer: type[GatheringWriter] = GatheringWriter,
) -> None:
    """Commit the rows that a killed run has left, before the query continues; `writer` is that of
    its rows.
    """
    if not possible(warehouse):
        return
    gathered, ended = Gathered(warehouse, query), checkpoints.last_ended(warehouse, query)
    for name in gathered.tables():
        batches = gathered.batches(name)
        gathered.remove(name, [batch for batch in batches if batch > ended])
    checkpoints.forget_gathered_after(warehouse, query, ended)
    if gathered.first() is not None:
        writer(warehouse, query, history_ms).commit_all()
