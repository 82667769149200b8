"""A replay in tasks of Spark: its exchange brings the packed records of a part to one task, sorted.

The tasks write the files of rows and states, as they do in threads, so the warehouse must be where
all of them reach it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from app.engine.shard_labels import partition_of
from app.errors import UserError
from app.sources.worker import settle
from app.whatif.replay.archive_reader import ArchiveReader, Bins
from app.whatif.replay.stages import Placed, ReplayPart, Stages, Write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from app.tables.data_files import DataFile
    from app.whatif.replay.replay_progress import ReplayProgress

Batches = Iterable[pa.RecordBatch]
BINS = "bin bigint, records bigint, latest_ms bigint"
PACKED = "part int, place bigint, blob binary"
"""Packed records on their way: `part` leads to the partition of the part's number, `place` is the
shard and the slice."""
_PACKED = pa.schema([("part", pa.int32()), ("place", pa.int64()), ("blob", pa.binary())])
JUDGED = "rows bigint"
BATCH_BYTES = 16 << 20
"""Packed records that a task hands on at a time."""
ROWS_AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch"
BLOBS = 64
"""Blobs that a task gets at once, of `app.engine.routing.BLOB_BYTES` at most."""
FILES_OF_TASK_ROWS = 250_000
"""Small files are read together up to so many rows."""
ROWS_OF_SHARE = 1 << 20
"""Rows of a large file that one task reads: the most that writers put into a row group."""
SLICE_BITS = 32


class FileShare(NamedTuple):
    """The row groups of a file that a task reads."""

    file: DataFile
    groups: slice


class OnSpark:
    """Runs a replay in tasks of a Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.cores = spark.sparkContext.defaultParallelism

    def bins(
        self, reader: ArchiveReader, files: Iterable[DataFile], offset_ms: int
    ) -> Iterator[Bins]:
        """The bins of the files of each task."""

        def count(share: FileShare) -> pa.RecordBatch:
            found = reader.bins(share.file, offset_ms, share.groups)
            rows = [(bin_, *counts) for bin_, counts in found.items()]
            columns = zip(*rows, strict=True) if rows else ([], [], [])
            return pa.record_batch(
                [pa.array(column, pa.int64()) for column in columns],
                names=["bin", "records", "latest_ms"],
            )

        counted = self._over(list(files), lambda share: [count(share)], BINS)
        with _mistakes_of_users():
            bins = counted.toArrow()
        for bin_, records, latest_ms in zip(*bins.to_pydict().values(), strict=True):
            yield {bin_: (records, latest_ms)}

    def run(
        self,
        stages: Stages,
        files: Sequence[DataFile],
        write: Write,
        progress: ReplayProgress,
    ) -> None:
        """Pack the records of some files, then judge every part."""
        context, parts = self._spark.sparkContext, list(stages.parts)
        read, packed_bytes = context.accumulator(0), context.accumulator(0)
        judged, judged_bytes = context.accumulator(0), context.accumulator(0)
        keys = keys_of(len(parts))
        key_of = dict(zip(parts, keys, strict=True))

        def pack(share: FileShare) -> Batches:
            for group in stages.reader.row_groups(share.file)[share.groups]:
                yield from _counted(_batches(stages, group, key_of), packed_bytes.add)
                read.add(group.rows)

        def judge(batches: Batches) -> Batches:
            from pyspark import TaskContext

            settle()
            task = TaskContext.get()
            assert task is not None
            count = write(
                stages, parts[task.partitionId()], _placed(_counted(batches, judged_bytes.add))
            )
            judged.add(1)
            yield pa.record_batch([pa.array([count], pa.int64())], names=["rows"])

        frame = (
            self._over(files, pack, PACKED)
            .repartition(len(parts), "part")
            .select("place", "blob")
            .sortWithinPartitions("place")
            .mapInArrow(judge, JUDGED)
        )
        with self._blobs_at_a_time(), ThreadPoolExecutor(1) as pool:
            action = pool.submit(frame.collect)
            reading, judging = (0, 0), (0, 0)
            try:
                while not action.done():
                    wait_for([action], 1.0)
                    before, reading = reading, (read.value, packed_bytes.value)
                    if reading > before:
                        progress.read(reading[0] - before[0], reading[1] - before[1])
                    before, judging = judging, (judged.value, judged_bytes.value)
                    if judging > before:
                        progress.judged(judging[0] - before[0], judging[1] - before[1])
            except BaseException:
                context.cancelAllJobs()
                raise
            with _mistakes_of_users():
                action.result()

    @contextmanager
    def _blobs_at_a_time(self) -> Iterator[None]:
        """Tasks get so many packed records at once that their memory is bounded."""
        conf = self._spark.conf
        before = conf.get(ROWS_AT_ONCE)
        conf.set(ROWS_AT_ONCE, str(BLOBS))
        try:
            yield
        finally:
            conf.set(ROWS_AT_ONCE, str(before))

    def _over(
        self, files: Sequence[DataFile], work: Callable[[FileShare], Batches], schema: str
    ) -> DataFrame:
        """What some work gives for each file; small files share a task, large ones have several."""
        shares = tasks_of(files)

        def of_task(batches: Batches) -> Batches:
            settle()
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    for share in shares[number]:
                        yield from work(share)

        tasks = self._spark.range(0, len(shares), numPartitions=max(len(shares), 1))
        return tasks.mapInArrow(of_task, schema)


@contextmanager
def _mistakes_of_users() -> Iterator[None]:
    """Raise a UserError of a task as such: Spark passes it on as text."""
    from pyspark.errors import PythonException

    try:
        yield
    except PythonException as error:
        told = re.search(r"^app\.errors\.UserError: ((?:.+\n?)+)", str(error), re.MULTILINE)
        if told is None:
            raise
        raise UserError(told[1].rstrip()) from error


def keys_of(partitions: int) -> list[int]:
    """Integers that Spark's hash sends to the partitions 0, 1, 2 and so on."""
    found: dict[int, int] = {}
    key = 0
    while len(found) < partitions:
        found.setdefault(partition_of(key, partitions), key)
        key += 1
    return [found[number] for number in range(partitions)]


def tasks_of(files: Sequence[DataFile]) -> list[list[FileShare]]:
    """The files of each task, or its share of a large one."""
    tasks: dict[int, list[FileShare]] = {}
    rows = 0
    for file in files:
        count = -(-(file.rows or 1) // ROWS_OF_SHARE)
        for number in range(count):
            share = FileShare(file, slice(number, None, count))
            tasks.setdefault(rows // FILES_OF_TASK_ROWS, []).append(share)
            rows += (file.rows or 0) // count
    return list(tasks.values())


def _counted(batches: Batches, add: Callable[[int], None]) -> Batches:
    """The batches; `add` gets the bytes of their blobs."""
    for batch in batches:
        add(batch.column("blob").nbytes)
        yield batch


def _batches(stages: Stages, group: Any, key_of: dict[ReplayPart, int]) -> Batches:
    """The packed records of a row group, as rows of PACKED."""
    held: list[tuple[int, int, Any]] = []
    size = 0
    for one in stages.pack(group):
        part = key_of[stages.part_of(one.job, one.shard)]
        held.append((part, one.shard << SLICE_BITS | one.slice, one.blob))
        size += one.blob.size
        if size >= BATCH_BYTES:
            yield _batch(held)
            held, size = [], 0
    if held:
        yield _batch(held)


def _batch(held: Sequence[tuple[int, int, Any]]) -> pa.RecordBatch:
    parts, places, blobs = zip(*held, strict=True)
    ends = pa.array(list(accumulate((blob.size for blob in blobs), initial=0)), pa.int32())
    data = pa.py_buffer(b"".join(blobs))
    return pa.record_batch(
        [
            pa.array(parts, pa.int32()),
            pa.array(places, pa.int64()),
            pa.BinaryArray.from_buffers(pa.binary(), len(blobs), [None, ends.buffers()[1], data]),
        ],
        schema=_PACKED,
    )


def _placed(batches: Batches) -> Iterator[Placed]:
    """Rows of PACKED as blobs of shards and slices."""
    for batch in batches:
        for place, blob in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            shard, number = place >> SLICE_BITS, place & (1 << SLICE_BITS) - 1
            yield Placed(shard, number, blob.as_buffer())
