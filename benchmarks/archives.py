"""An archive as a run leaves it, written without Spark: by the writer of the archive's tasks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from app.archive_names import WRITES
from app.config.settings import Settings
from app.engine import archive_task
from app.tables import archive_files
from app.tables.commit import Writer
from app.tables.definitions import TABLES
from benchmarks.generator.trace import Trace

ROWS_PER_COMMIT = 1_000_000


def batches_of(trace: Trace) -> Iterator[pa.RecordBatch]:
    """The records of a trace in one partition, as a source gives them."""
    offset = 0
    for part in trace.slices():
        n = len(part.ends)
        if not n:
            continue
        ends = np.concatenate([[0], part.ends]).astype(np.int32)
        text = pa.py_buffer(np.ascontiguousarray(part.data))
        value = pa.BinaryArray.from_buffers(pa.binary(), n, [None, pa.py_buffer(ends), text])
        yield pa.record_batch(
            {
                "value": value,
                "source_partition": pa.repeat(pa.scalar("0"), n),
                "source_offset": pa.array(np.arange(offset, offset + n)),
            }
        )
        offset += n


def build(settings: Settings, trace: Trace, rows_per_commit: int = ROWS_PER_COMMIT) -> int:
    """Write the archive of a trace into the warehouse; how many records it read."""
    writer = Writer(
        settings.location,
        "archive",
        settings.maintenance.history_ms,
        application="weir-bench-archive",
    )
    writer.prepare(list(WRITES))
    write = archive_task.file_writer(archive_task.ArchiveTarget.of(settings))
    number = read = 0
    held: list[pa.RecordBatch] = []
    for batch in batches_of(trace):
        held.append(batch)
        read += batch.num_rows
        if sum(b.num_rows for b in held) >= rows_per_commit:
            _commit(writer, list(write(iter(held))), number)
            number, held = number + 1, []
    if held:
        _commit(writer, list(write(iter(held))), number)
    return read


def _commit(writer: Writer, written: list[pa.RecordBatch], number: int) -> None:
    bodies = [body for part in written for body in part["blob"].to_pylist()]
    for name, files in archive_task.files_of(bodies).items():
        writer.add_files(name, archive_files.actions(TABLES[name], files), number)
