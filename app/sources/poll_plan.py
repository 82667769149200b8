"""Plans the batches of the polls, in a process of Spark that stays beside the query.

It imports little: neither pyarrow nor the compiled cores.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import InputPartition

from app import folders
from app.errors import UserError
from app.sources.python_source import PlanningReader, Rows
from app.tables import checkpoints

if TYPE_CHECKING:
    from app.config.location import Location

Document = dict[str, Any]
"""An offset."""
POSITIONS, FILES, WAITING, MORE = checkpoints.POLLS, checkpoints.POLL_FILES, "waiting", "more"
"""Keys of an offset: what was read, by folder; the files of the batch that ends there; the formats of
which records wait for the streamed source; whether it leaves files behind.
"""
IDLE_S = 0.1
"""Duration of a look that finds nothing new, because Spark asks again at once."""
LOOK_S = 1.0
"""Between two looks at what the streamed source has given."""
SETTLED_NS = 2_000_000_000
"""Age of a folder's last change after which an equal time means that nothing has changed."""
GZIP_RATIO = 30
"""How many bytes of records a byte of a poll's file is taken for."""
SCHEMA = "path string, base string, waits boolean"
_NAME = re.compile(r"poll-([0-9]{15})-([0-9]{15})\.jsonl(\.gz)?")


class PollFile(NamedTuple):
    """A file of a poll."""

    at_ms: int
    """When the poll began."""
    seq: int
    """Number of its first record."""
    path: str
    bytes: int
    """Of its lines, about."""
    written_ms: int

    @property
    def folder(self) -> str:
        """The name of the feed's folder, which it keeps where the warehouse is moved."""
        return _folder(self.path)


@dataclass(frozen=True)
class PollPlan:
    """What the stream of a query reads; passed to the process that plans its batches."""

    roots: tuple[str, ...]
    """The folders that have those of the feeds."""
    max_bytes: int | None
    """Most bytes of a batch; None for all that is there."""
    tasks: int
    planned: Document = field(default_factory=dict)
    """End of the last planned batch."""
    shared: frozenset[str] = frozenset()
    """Formats of polls that share keys with the streamed source, and wait for it."""
    watch: StreamedSource | None = None
    """None where they wait in any case."""
    ending: bool = False
    """Whether the query stops at the files that are there when it starts."""


class StreamedSource:
    """Whether the streamed source of a query has anything new, by the batches that have ended."""

    def __init__(self, warehouse: Location, query: str, idle_ms: int) -> None:
        self._warehouse, self._query, self._idle_s = warehouse, query, idle_ms / 1000
        self._end: Document | None = None
        self._changed_s = self._looked_s = float("-inf")

    def look(self, after_s: float = LOOK_S) -> None:
        """See what has ended, if the last look is so long ago: called all the time, so that it is
        known when that was."""
        now_s = time.monotonic()
        if now_s - self._looked_s < after_s:
            return
        first, self._looked_s = self._looked_s < 0, now_s
        last = checkpoints.last_ended(self._warehouse, self._query)
        end = checkpoints.offsets(self._warehouse, self._query, last)
        if first or end != self._end:
            self._end, self._changed_s = end, now_s

    def idle(self) -> bool:
        """Whether it has had nothing new for `idle_ms`, since the first look at the earliest."""
        self.look(0)
        return time.monotonic() - self._changed_s >= self._idle_s


class PollReader(PlanningReader):
    """Plans the batches of one query."""

    def __init__(self, plan: PollPlan) -> None:
        self._plan = plan
        self._last = plan.planned
        self._folders = Folders(plan.roots)
        self._until: set[str] | None = None

    def initialOffset(self) -> Document:  # noqa: N802
        """The start of the first batch."""
        return {POSITIONS: {}, FILES: [], MORE: False}

    def latestOffset(self) -> Document:  # noqa: N802
        """The end of the next batch."""
        found = self.next(self._last)
        if found == self._last:
            time.sleep(IDLE_S)
        return found

    def next(self, before: Document) -> Document:
        """The end of a batch that begins at `before`; `before` itself if nothing is new."""
        positions = {name: tuple(read) for name, read in before.get(POSITIONS, {}).items()}
        new = [file for file in self._folders.files() if _is_new(file, positions)]
        if self._plan.watch is not None and self._plan.shared:
            self._plan.watch.look()
        if self._plan.ending:
            if self._until is None:
                self._until = {file.path for file in new}
            new = [file for file in new if file.path in self._until]
        taken = _within(new, self._plan.max_bytes)
        if not taken:
            left = {**before, FILES: [], MORE: False} if before.get(MORE) else before
            return left or self.initialOffset()
        for file in taken:
            at_ms, seq = positions.get(file.folder, (-1, -1))
            positions[file.folder] = max(at_ms, file.at_ms), max(seq, file.seq)
        return {
            POSITIONS: {name: list(read) for name, read in positions.items()},
            FILES: [file.path for file in taken],
            WAITING: self._waiting(taken),
            MORE: len(taken) < len(new),
        }

    def _waiting(self, files: Sequence[PollFile]) -> list[str]:
        """The formats of these files whose records wait for the streamed source."""
        found = sorted({_format(file.path) for file in files} & self._plan.shared)
        idle = bool(found) and self._plan.watch is not None and self._plan.watch.idle()
        return [] if idle else found

    def partitions(self, start: Document, end: Document) -> Sequence[InputPartition]:
        """The files of the batch between two offsets, for a few tasks."""
        self._last = end
        return [] if start == end else _shared(end[FILES], self._plan.tasks, end.get(WAITING, ()))


class Folders:
    """The files of all feeds in some folders; a folder that has not changed is not read again."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = roots
        self._there: dict[Path, tuple[int, list[PollFile]]] = {}

    def files(self) -> list[PollFile]:
        """In the order of their polls."""
        found = [file for folder in self._folders() for file in self._files(folder)]
        return sorted(found)

    def _folders(self) -> Iterator[Path]:
        for root in self._roots:
            yield from folders.matching(Path(root), "*/polls")

    def _files(self, folder: Path) -> list[PollFile]:
        about = folders.look(folder)
        if about is None:
            return []
        changed_ns = about.st_mtime_ns
        before = self._there.get(folder)
        if before is not None and before[0] == changed_ns:
            return before[1]
        found = []
        for path, size, written_ns in folders.files(folder):
            name = _NAME.fullmatch(path.name)
            if name is not None:
                size *= GZIP_RATIO if name[3] else 1
                written_ms = written_ns // 1_000_000
                found.append(PollFile(int(name[1]), int(name[2]), str(path), size, written_ms))
        if time.time_ns() - changed_ns > SETTLED_NS:
            self._there[folder] = changed_ns, found
        return found


def needed(
    warehouse: Location, queries: Iterable[str], folder: str, names: Sequence[str]
) -> set[str]:
    """Of the names of a feed's files, those that a batch of any query has planned and not ended, and
    those that one of `queries` has not read. All of them if that cannot be found out.
    """
    running = list(queries)
    try:
        open_batches = [
            checkpoints.poll_offsets(warehouse, query, batch)
            for query in {*running, *checkpoints.found(warehouse)}
            if (batch := checkpoints.planned(warehouse, query)) is not None
        ]
        read = [
            checkpoints.poll_offsets(warehouse, query, checkpoints.last_ended(warehouse, query))
            for query in running
        ]
    except (UserError, OSError, ValueError):
        return set(names)
    found = {path.rsplit("/", 1)[1] for batch in open_batches for path in batch.get(FILES, ())}
    return found.union(*(set(names) - read_of(folder, names, end) for end in read))


def _is_new(file: PollFile, positions: dict[str, tuple[int, int]]) -> bool:
    """Whether a file was not read. Times go back with the clock, and numbers where the memory of the
    polls was deleted; not both.
    """
    at_ms, seq = positions.get(file.folder, (-1, -1))
    return file.at_ms > at_ms or file.seq > seq


def read_of(folder: str, names: Iterable[str], end: Document) -> set[str]:
    """Of the names in a feed's folder, those of files that a query has read at an offset."""
    at_ms, seq = end.get(POSITIONS, {}).get(folder, (-1, -1))
    found = ((name, _NAME.fullmatch(name)) for name in names)
    return {name for name, of in found if of and int(of[1]) <= at_ms and int(of[2]) <= seq}


def _within(files: Sequence[PollFile], most: int | None) -> list[PollFile]:
    """The first files, one at least, that have no more than so many bytes."""
    taken: list[PollFile] = []
    size = 0
    for file in files:
        size += file.bytes
        if taken and most is not None and size > most:
            break
        taken.append(file)
    return taken


def _shared(files: Sequence[str], tasks: int, wait: Sequence[str] = ()) -> list[InputPartition]:
    """Files for a few tasks; records of the formats `wait` do."""
    all_of_them = [(path, path.rsplit("/", 3)[0], _format(path) in wait) for path in files]
    return [Rows(all_of_them[n::tasks]) for n in range(min(tasks, len(files)))]


def _folder(path: str) -> str:
    """The name of the folder of a file's feed."""
    return path.rsplit("/", 3)[1]


def _format(path: str) -> str:
    return _folder(path).split(".", 1)[0]
