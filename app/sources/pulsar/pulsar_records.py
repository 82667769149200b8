"""Pulsar topics whose messages are JSON records, through Spark's Python data source API.

`source.options` are those of `app.config.pulsar`; `${env:NAME}` is resolved here, not earlier. A
record is identified by its message id: partition and ledger in `source_partition`, entry and index
in its batch in `source_offset`. If several topics are read, the partition is named with its topic.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from app.config.pulsar import topic_names
from app.sources.pulsar import position_range, topic_client
from app.sources.pulsar.position_range import Range
from app.sources.pulsar.shares import EARLIEST, MORE, PulsarShares
from app.sources.raw import Batches, Document, Raw, Step
from app.tables import checkpoints

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from app.config.location import Location
    from app.config.source import SourceSettings
    from app.sources.pulsar.planned_ranges import RangePlan
    from app.sources.pulsar.topic_client import Options

PREFIX = "weir"


def check(feed: SourceSettings, warehouse: Location) -> None:
    """UserError for brokers that do not answer, and topics that cannot be read."""
    topic_client.check(feed.reader_options(), topic_client.TIMEOUT_MS)


def stream(
    spark: SparkSession, feed: SourceSettings, warehouse: Location, query: str, ending: bool
) -> Raw:
    """The messages of the topics from the query's position on. With `ending` it stops at their
    present end.
    """
    plan = stream_plan(feed, warehouse, query, ending)
    return Raw(ranges(spark, plan), values(plan.options), plan.shares)


def finished(warehouse: Location, query: str) -> bool:
    """Whether the query's last batch has ended and left no records behind."""
    last = checkpoints.last_planned(warehouse, query)
    return last < 0 or (
        checkpoints.settled(warehouse, query)
        and not checkpoints.offsets(warehouse, query, last).get(MORE)
    )


def values(options: Options) -> Step:
    """The step that reads ranges in the task that parses their records."""

    def unpack(batches: Batches) -> Batches:
        for batch in batches:
            for row in batch.to_pylist():
                yield from position_range.read(options, Range(**row))

    return unpack


def ranges(spark: SparkSession, plan: RangePlan) -> DataFrame:
    """The ranges of a plan, batch by batch."""
    from app.sources.pulsar.planned_ranges import RangeReader
    from app.sources.python_source import opened

    return opened(spark, position_range.SCHEMA, RangeReader(plan))


def stream_plan(feed: SourceSettings, warehouse: Location, query: str, ending: bool) -> RangePlan:
    """The plan of a query, from the position in its checkpoint."""
    from app.sources.pulsar.planned_ranges import RangePlan

    options, name = feed.reader_options(), checkpoints.application_id(warehouse, query)
    topics = tuple(topic_names(options))
    plan = RangePlan(
        options,
        topics,
        PulsarShares(feed.max_records_per_trigger, len(topics) != 1),
        max_records=feed.max_records_per_trigger,
        max_bytes=feed.max_bytes_per_trigger,
        ending=ending,
        subscription=feed.options.get("subscriptionPrefix", PREFIX) + name.removeprefix(PREFIX),
        planned=_end(warehouse, query, checkpoints.last_planned(warehouse, query)),
        ended=_end(warehouse, query, checkpoints.last_ended(warehouse, query)),
    )
    if plan.options.get("startingOffsets", "earliest") == "latest":
        plan = replace(plan, first=_latest(warehouse, query, plan))
    return plan


def _end(warehouse: Location, query: str, batch: int) -> Document | None:
    return checkpoints.offsets(warehouse, query, batch) if batch >= 0 else None


def _latest(warehouse: Location, query: str, plan: RangePlan) -> Document:
    """The end of the topics at the first start of the query."""
    from app.sources.pulsar.planned_ranges import Planner

    kept = checkpoints.require_identity(warehouse, query).first_offset
    if kept is None:
        planner = Planner(plan)
        try:
            kept = planner.all() if plan.planned is None else EARLIEST
        finally:
            planner.close()
        checkpoints.identify(warehouse, query, first_offset=kept)
    return kept
