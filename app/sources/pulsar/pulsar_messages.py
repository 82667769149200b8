"""Ordinary Pulsar topics, entry by entry, without any plug-in of the broker.

Each entry becomes a `publish`, an `entry_added` and, if `source.messages.subscription` names one,
a `dispatch` to one consumer per partition. A batch is one entry of several messages, and its
delivery has no payload. Chunk fields and the producer's name are those of the metadata; the
principal comes from a property whose name can be set. So topic limits and reassembly work on a
topic without instrumentation. Connections, victims and acknowledgements are not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from app.config.pulsar import topic_names
from app.errors import UserError
from app.sources.message_events import FeedValues, together
from app.sources.polling import Unanswered
from app.sources.pulsar import pulsar_records
from app.sources.pulsar.admin_client import AdminClient, NotThere, topic_path
from app.sources.pulsar.entries import Entry, admin_settings, entries
from app.sources.pulsar.message_positions import offset
from app.sources.pulsar.position_range import BYTES, ROWS, Range
from app.sources.raw import Batches, Raw, Step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.location import Location
    from app.config.source import MessagesSettings, SourceSettings
    from app.sources.pulsar.topic_client import Options

FEED = "pulsar_messages"
CLUSTER = CONNECTION = "pulsar"
PARTITION = "-partition-"
finished = pulsar_records.finished


def check(feed: SourceSettings, warehouse: Location) -> None:
    """UserError for brokers that do not answer, and topics that cannot be read."""
    pulsar_records.check(feed, warehouse)
    options = feed.reader_options()
    if "adminUrl" not in options:
        return
    topic = topic_names(options)[0]
    session = AdminClient(admin_settings(options, topic)).session()
    try:
        session.get(f"{topic_path(topic)}/partitions")
    except (Unanswered, NotThere) as error:
        raise UserError(
            f"source.options.adminUrl: {options['adminUrl']} does not answer: {error}\n"
            "allowed: http://host:port or https://host:port of a broker's admin interface"
        ) from None


def stream(
    spark: SparkSession, feed: SourceSettings, warehouse: Location, query: str, ending: bool
) -> Raw:
    """The entries of the topics from the query's position on. With `ending` it stops at their
    present end.
    """
    plan = pulsar_records.stream_plan(feed, warehouse, query, ending)
    frame = pulsar_records.ranges(spark, plan)
    return Raw(frame, records(plan.options, feed.messages), plan.shares)


def records(options: Options, names: MessagesSettings) -> Step:
    """The step from ranges to records of the contract, as columns."""
    chosen = names.model_fields_set
    feed = FeedValues(
        FEED,
        CONNECTION,
        names.cluster if "cluster" in chosen else CLUSTER,
        names.broker if "broker" in chosen else CLUSTER,
        names.subscription,
    )
    principal = names.headers.principal

    def unpack(batches: Batches) -> Batches:
        for batch in batches:
            for row in batch.to_pylist():
                range_ = Range(**row)
                for found in _in_pieces(entries(options, range_)):
                    yield records_of(feed, range_, found, principal)

    return unpack


def _in_pieces(found: Iterator[Entry]) -> Iterator[list[Entry]]:
    held: list[Entry] = []
    size = 0
    for entry in found:
        held.append(entry)
        size += entry.size
        if len(held) >= ROWS or size >= BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


def records_of(
    feed: FeedValues, range_: Range, found: list[Entry], principal: str
) -> pa.RecordBatch:
    n = len(found)
    topic, parted, number = range_.topic.rpartition(PARTITION)

    def column(name: str, type_: pa.DataType) -> pa.Array:
        return pa.array([getattr(entry, name) for entry in found], type_)

    common = {
        **feed.common(
            pa.repeat(pa.scalar(topic if parted else range_.topic), n),
            column("publish_ms", pa.int64()),
        ),
        "partition": pa.repeat(pa.scalar(int(number) if parted else None, pa.int32()), n),
        "entry_id": column("entry", pa.int64()),
        "entry_bytes": column("size", pa.int64()),
        "num_messages": column("messages", pa.int32()),
        "source_partition": pa.array(
            [f"{range_.name}:{entry.ledger}" for entry in found], pa.string()
        ),
        "source_offset": pa.array([offset(entry.entry, 0) for entry in found], pa.int64()),
        "principal": pa.array([entry.properties.get(principal) for entry in found], pa.string()),
        "producer_name": column("producer_name", pa.string()),
        **{
            name: column(name, pa.string())
            for name in ("sequence_id", "uuid", "chunk_id", "num_chunks", "total_chunk_bytes")
        },
    }
    return together(
        feed.events(common, column("ledger", pa.int64()), column("payload", pa.binary()))
    )
