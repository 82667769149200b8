"""A replay in threads of one process: the compiled cores run beside each other.

Packed records wait on disk until all are read, one file for each part.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from app.tables.data_files import DataFile
from app.terminal.interrupt import temporary_folder
from app.whatif.replay.archive import bins_in_threads
from app.whatif.replay.archive_reader import ArchiveReader, Bins, PackedBlob, RowGroup
from app.whatif.replay.replay_progress import ReplayProgress
from app.whatif.replay.stages import Placed, ReplayPart, Stages, Write
from udfs.allocator import keep_freed_memory

SWITCH_S = 0.0005
"""How long a thread waits for another that holds the interpreter: a tenth of the default, since
what Python does between two compiled steps is short."""
BUFFER_BYTES = 1 << 20


class _BlobPlace(NamedTuple):
    """Where a blob is in the file of its part."""

    shard: int
    slice: int
    offset: int
    bytes: int


class _WaitingPart:
    """The packed records of a part, one behind the other in a file. Threads may put at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("wb", BUFFER_BYTES)
        self._places: list[_BlobPlace] = []
        self._lock = threading.Lock()
        self.bytes = 0

    def put(self, packed: PackedBlob) -> None:
        """Keep a blob."""
        with self._lock:
            self._file.write(packed.blob)
            self._places.append(
                _BlobPlace(packed.shard, packed.slice, self.bytes, packed.blob.size)
            )
            self.bytes += packed.blob.size

    def taken(self) -> Iterator[Placed]:
        """All blobs in order of shards and slices, once."""
        self._file.close()
        if self._places:
            with pa.memory_map(str(self._path)) as file:
                for place in sorted(self._places):
                    file.seek(place.offset)
                    yield Placed(place.shard, place.slice, file.read_buffer(place.bytes))
        self._path.unlink(missing_ok=True)


class Threads:
    """Runs a replay in threads of this process."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder`: where packed records wait, in place of one for temporary files."""
        self._folder, self.cores = folder, os.cpu_count() or 1

    def bins(
        self, reader: ArchiveReader, files: Iterable[DataFile], offset_ms: int
    ) -> Iterator[Bins]:
        """The bins of each file."""
        return bins_in_threads(reader, files, offset_ms)

    def run(
        self, stages: Stages, files: Sequence[DataFile], write: Write, progress: ReplayProgress
    ) -> None:
        """Pack the records of some files, then judge every part."""
        keep_freed_memory()
        with _quick_switches(), self._empty_folder() as folder:
            waiting = {
                part: _WaitingPart(folder / f"{part.job}-{part.remainder}") for part in stages.parts
            }
            pool = ThreadPoolExecutor(self.cores)

            def pack(group: RowGroup) -> tuple[int, int]:
                size = 0
                for packed in stages.pack(group):
                    waiting[stages.part_of(packed.job, packed.shard)].put(packed)
                    size += packed.blob.size
                return group.rows, size

            def judge(part: ReplayPart) -> int:
                write(stages, part, waiting[part].taken())
                return waiting[part].bytes

            try:
                groups = chain.from_iterable(pool.map(stages.reader.row_groups, files))
                for read in as_completed([pool.submit(pack, group) for group in groups]):
                    progress.read(*read.result())
                largest = sorted(stages.parts, key=lambda part: -waiting[part].bytes)
                for judged in as_completed([pool.submit(judge, part) for part in largest]):
                    progress.judged(1, judged.result())
            except OSError as error:
                error.filename = error.filename or str(folder)  # records that wait have no name
                raise
            finally:
                pool.shutdown(cancel_futures=True)

    @contextmanager
    def _empty_folder(self) -> Iterator[Path]:
        if self._folder is None:
            with temporary_folder("weir-replay-") as folder:
                yield folder
            return
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        try:
            yield self._folder
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def _quick_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
