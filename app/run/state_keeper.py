"""Saves the states of a run's jobs at an interval and at its end, for replays.

A thread reads the states of an ended batch from the query's checkpoint, beside the running queries.
Only a warehouse in a local folder has saved states.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from app.archive_names import ARCHIVE
from app.engine.assignment import jobs_of
from app.errors import UserError, reason
from app.sources.files.line_files import folder
from app.sources.files.open_file import absolute
from app.sources.kafka import kafka_records
from app.sources.raw import Shares
from app.tables import checkpoints, manifest, state_files
from app.tables.small_files import local_path, path_in
from app.tables.spark_files import SourceLog
from app.tables.state_files import SourcePosition, States
from state.engine.shadows import live_state
from state.jobs import DECLARED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.location import Location
    from app.config.settings import Settings
    from app.config.source import SourceSettings

OFFSETS = ("kafka", "kafka_messages")
SOURCES = (*OFFSETS, "files")
"""Sources whose positions are partitions and offsets, or files."""


def refuse(settings: Settings) -> None:
    """UserError if saved states are configured and this run cannot save any."""
    if settings.saved_states.interval_ms is None:
        return
    other = [feed.format for feed in settings.source if feed.format not in SOURCES]
    if other:
        raise UserError(
            f"saved_states.interval_ms: states of source.format {other[0]} have no "
            f"place in the archive (allowed: null, or source.format {', '.join(SOURCES)})"
        )
    if local_path(settings.warehouse) is None:
        raise UserError(
            "saved_states.interval_ms: states are kept in a warehouse on this machine "
            "only (allowed: null)"
        )


class StateKeeper:
    """Saves the states of the queries of a run."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        queries: Mapping[str, Sequence[str]],
        warn: Callable[[str], None],
    ) -> None:
        """`queries` maps each query to its jobs."""
        self._spark, self._settings, self._warn = spark, settings, warn
        self._queries = {name: jobs_of(jobs) for name, jobs in queries.items() if name != ARCHIVE}
        self._interval_ms = settings.saved_states.interval_ms
        self._kept: dict[str, int] = {}
        self._next_s = time.monotonic() + (self._interval_ms or 0) / 1000
        self._thread: threading.Thread | None = None

    def look(self) -> None:
        """Begin to save the states if the interval is over; called between two looks at the
        queries.
        """
        if self._interval_ms is None or time.monotonic() < self._next_s:
            return
        if self._thread is None or not self._thread.is_alive():
            self._next_s = time.monotonic() + self._interval_ms / 1000
            self._thread = threading.Thread(target=self._keep_all, daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Save the states in which the queries have ended."""
        if self._interval_ms is None:
            return
        if self._thread is not None:
            self._thread.join()
        self._keep_all()

    def _keep_all(self) -> None:
        for query, jobs in self._queries.items():
            try:
                batch = checkpoints.last_ended(self._settings.location, query)
                if batch >= 0 and self._kept.get(query) != batch:
                    keep(self._spark, self._settings, query, jobs, batch)
                    self._kept[query] = batch
            except Exception as error:  # noqa: BLE001 - a run goes on without them
                self._warn(
                    f"{query}: its states are not kept ({type(error).__name__}: {reason(error)})"
                )


def keep(
    spark: SparkSession, settings: Settings, query: str, jobs: Sequence[str], batch: int
) -> None:
    """Save the states of a query after one of its batches, and remove the oldest ones."""
    from pyspark.sql import functions as F

    clock_ms = checkpoints.next_watermark_ms(settings.location, query, batch)
    latest_ms = clock_ms + settings.idle_advance_ms if clock_ms > 0 else 0
    found = States(latest_ms=latest_ms)
    rows = (
        spark.read.format("statestore")
        .option("batchId", batch)
        .load(checkpoints.location(settings.location, query))
        .select(
            "key.job",
            "key.shard",
            F.col("value.groupState.state").alias("state"),
            F.col("value.timeoutTimestamp").alias("due_ms"),
        )
        .where(F.col("job").isin(list(jobs)))
    )
    numbers = settings.model_copy(update=manifest.numbers(settings.location))
    for row in rows.toLocalIterator():
        state, due_ms = live_state(bytes(row["state"])), row["due_ms"]
        shard = row["shard"] % numbers.shard_count
        found.keep((row["job"], shard), state, due_ms if due_ms >= 0 else None)
    place = position(settings.location, settings.feed, query, batch)
    path = f"{state_files.FOLDER}/{query}-{batch}.arrow"
    at = local_path(path_in(settings.location, path))
    assert at is not None
    state_files.write(
        at,
        found,
        {
            "query": query,
            "jobs": list(jobs),
            "batch": batch,
            "shards": numbers.shard_count,
            "versions": {job: DECLARED[job].state_version for job in jobs},
            "offsets": dict(place.offsets),
            "files": list(place.files),
        },
    )
    gone = manifest.keep_states(
        settings.location,
        manifest.SavedStates(
            path,
            query,
            list(jobs),
            batch,
            latest_ms,
            time.time_ns() // 1_000_000,
        ),
        settings.saved_states.keep,
    )
    for name in gone:
        file = local_path(path_in(settings.location, name))
        assert file is not None
        file.unlink(missing_ok=True)


def position(warehouse: Location, feed: SourceSettings, query: str, batch: int) -> SourcePosition:
    """The records that the batches of a query up to this one have taken."""
    document = checkpoints.offsets(warehouse, query, batch)
    if feed.format in OFFSETS:
        shares = Shares(0, with_topic=kafka_records.names_topics(feed.reader_options()))
        return SourcePosition(shares.ends(document))
    base, last = folder(str(feed.path)), int(document["logOffset"])
    return SourcePosition(
        files=sorted(
            absolute(file.path).removeprefix(base).lstrip("/")
            for file in SourceLog(warehouse, query).files(last)
        )
    )
