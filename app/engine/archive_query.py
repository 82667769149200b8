"""The archive on the driver: usable records go to `events`, refused ones to `quarantine`.

Tasks write Parquet files (`archive_task`), and the driver adds those of a micro-batch to each table,
so no record passes through the rows of the JVM or through the driver. A repeated task leaves files
that no table names. The tasks are those of a query of jobs (`govern`), which parses the records
anyway, or of a query of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from app.archive_names import ARCHIVE, WRITES
from app.engine.archive_task import ArchiveTarget, file_writer, files_of
from app.engine.messages import PACKED
from app.sources import open_stream
from app.sources.files import planned_files
from app.tables import checkpoints, lease
from app.tables.archive_files import ArchiveWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from app.config.settings import Settings


class Archivist:
    """Commits the files of the tasks, on the driver."""

    def __init__(self, writer: ArchiveWriter) -> None:
        self._writer = writer

    def prepare(self) -> None:
        """Create the tables of the archive."""
        self._writer.prepare(list(WRITES))

    def commit(self, bodies: Iterable[Any], batch: int) -> None:
        """Add the files of a batch to their tables, or gather them; `bodies` are those of ARCHIVED.
        The batch ends with `settle` of a writer of the same warehouse.
        """
        for name, files in files_of(bodies).items():
            self._writer.add(name, files, batch)
        self._writer.record(batch)

    def __call__(self, written: DataFrame, batch: int) -> None:
        """A micro-batch of the archive's own query: its files do not wait."""
        self.commit([b.as_buffer() for b in written.toArrow().column("blob")], batch)
        self._writer.settle(batch)
        self._writer.commit_all()


def start(
    spark: SparkSession,
    settings: Settings,
    trigger: dict[str, Any] | None = None,
    writer: ArchiveWriter | None = None,
    ending: bool = False,
) -> StreamingQuery:
    """Start the archive as a query of its own. With `ending` it stops at the source's present end.

    Without a `writer` every micro-batch commits its files as they are.
    """
    archivist = Archivist(writer or writer_of(settings, gathers=False))
    archivist.prepare()
    raw = open_stream(spark, settings, ARCHIVE, ending)
    frame = raw.through(file_writer(ArchiveTarget.of(settings)), PACKED).select("blob")
    interval = f"{settings.archive_interval_ms} milliseconds"
    write = planned_files.compared(settings.streamed, settings.location, ARCHIVE, archivist)
    return (
        frame.writeStream.queryName(ARCHIVE)
        .outputMode("append")
        .option("checkpointLocation", checkpoints.location(settings.location, ARCHIVE))
        .trigger(**(trigger or {"processingTime": interval}))
        .foreachBatch(lease.guarded(settings.location, ARCHIVE, write))
        .start()
    )


def writer_of(settings: Settings, *, gathers: bool) -> ArchiveWriter:
    """The writer of the archive; one that does not gather commits the files of every batch."""
    intervals_ms = settings.commit_interval_ms if gathers else dict.fromkeys(WRITES, 0)
    history_ms = settings.maintenance.history_ms
    return ArchiveWriter(settings.location, ARCHIVE, history_ms, intervals_ms)
