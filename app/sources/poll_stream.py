"""The files of all polled feeds as one stream, through Spark's Python data source API.

A batch names its files in its offset, so a repetition reads the same ones. Beside them the offset
has a position in each feed's folder, which says what was read: Spark's own source of files keeps the
name of every file for ever, and feeds write thousands a day. Feeds come and go between runs without
a change of what Spark knows of its sources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.config.source import GIVES, POLLED
from app.sources.clocks import waiting
from app.sources.files.line_files import lines_of
from app.sources.poll_plan import MORE, SCHEMA, PollPlan, PollReader, StreamedSource
from app.sources.polled import roots
from app.sources.python_source import opened
from app.sources.raw import Batches, Raw
from app.tables import checkpoints
from state.jobs import DECLARED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.location import Location
    from app.config.settings import Settings


def stream(spark: SparkSession, settings: Settings, query: str, ending: bool) -> Raw:
    """The records of the polls from the query's position on.

    Those that share keys with the streamed source wait in the jobs for the stream's clock: a poll is
    of now, and would make what the source has of its topic too late. Where the source has had
    nothing new for `idle_advance_ms` they move the clocks of their keys.
    """
    warehouse = settings.location
    last = checkpoints.last_planned(warehouse, query)
    planned = checkpoints.poll_offsets(warehouse, query, last) if last >= 0 else {}
    alone = settings.streamed is None
    plan = PollPlan(
        tuple(map(str, roots(settings.polled, warehouse))),
        max(feed.max_bytes_per_trigger for feed in settings.polled)
        if alone or not ending
        else None,
        spark.sparkContext.defaultParallelism,
        planned,
        sharing(settings),
        None if alone or ending else StreamedSource(warehouse, query, settings.idle_advance_ms),
        ending,
    )
    return Raw(opened(spark, SCHEMA, PollReader(plan)), _unpack)


def sharing(settings: Settings) -> frozenset[str]:
    """The formats of polls whose records may have the keys of records of the streamed source."""
    feed = settings.streamed
    if feed is None:
        return frozenset()
    return frozenset(
        name
        for name in POLLED
        for job in settings.jobs
        if feed.gives_any(DECLARED[job].kinds)
        and not set(GIVES[name]).isdisjoint(DECLARED[job].kinds)
    )


def finished(warehouse: Location, query: str) -> bool:
    """Whether the query's last batch has ended and left no files behind."""
    last = checkpoints.last_planned(warehouse, query)
    return last < 0 or (
        checkpoints.settled(warehouse, query)
        and not checkpoints.poll_offsets(warehouse, query, last).get(MORE)
    )


def _unpack(batches: Batches) -> Batches:
    for batch in batches:
        for row in batch.to_pylist():
            for records in lines_of(row["path"], row["base"], None):
                yield waiting(records) if row["waits"] else records
