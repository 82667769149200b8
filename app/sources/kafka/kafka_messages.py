"""Ordinary Kafka topics, record by record, without a feed from the broker
(docs/feeds/kafka-messages.md).

Each record becomes a `publish`, an `entry_added` and, if `source.messages.subscription` is set, a
`dispatch` to one consumer per partition; a producer id in a header adds a `produce_batch`. Chunk
fields, principal and producer come from headers with configurable names. So topic limits,
reassembly and windows of producer ids work without instrumentation. Connections, victims and
acknowledgements are not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.sources.kafka import kafka_records
from app.sources.message_events import FeedValues, together
from app.sources.raw import Batches, Raw

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamReader

    from app.config.location import Location
    from app.config.source import MessagesSettings, SourceSettings

FEED = "kafka_messages"
LEDGER = 0
"""A partition is one open ledger."""
CONNECTION = "kafka"
"""The connection of all records, which have none of their own."""
INTEGERS = ("chunk_id", "num_chunks", "total_chunk_bytes", "producer_id")
check = kafka_records.check
claim = kafka_records.claim
place_beyond_time = kafka_records.place_beyond_time


def read(reader: DataStreamReader, feed: SourceSettings, warehouse: Location) -> Raw:
    """The records of the topics as columns of the contract."""
    from pyspark.sql.functions import col, length, transform, unix_millis

    options = {**kafka_records.stream_options(feed), "includeHeaders": "true"}
    names = feed.messages
    headers = col("headers")
    frame = (
        reader.format("kafka")
        .options(**options)
        .load()
        .select(
            "value",
            length("key").alias("key_bytes"),
            "topic",
            "partition",
            "offset",
            unix_millis("timestamp").alias("ms"),
            transform(headers, lambda h: h["key"]).alias("names"),
            transform(headers, lambda h: h["value"]).alias("values"),
        )
    )
    divided = kafka_records.shares(options)
    return Raw(frame, lambda batches: unpack(batches, names, divided.with_topic), divided)


def unpack(batches: Batches, names: MessagesSettings, many: bool = False) -> Batches:
    """Kafka records as records of the contract, as columns; `many` states that several topics are
    read.
    """
    for batch in batches:
        if batch.num_rows:
            yield _records(batch, names, many)


def _records(batch: pa.RecordBatch, names: MessagesSettings, many: bool) -> pa.RecordBatch:
    n = batch.num_rows
    feed = FeedValues(FEED, CONNECTION, names.cluster, names.broker, names.subscription)
    headers = _from_headers(batch, names)
    value = batch.column("value")
    sizes = [
        pc.fill_null(column, 0).cast(pa.int64())
        for column in (pc.binary_length(value), batch.column("key_bytes"))
    ]
    known = headers["producer_id"].is_valid()
    partition = batch.column("partition").cast(pa.string())
    if many:
        partition = pc.binary_join_element_wise(batch.column("topic"), partition, "-")
    common = {
        **feed.common(batch.column("topic"), batch.column("ms")),
        "partition": batch.column("partition"),
        "entry_id": batch.column("offset"),
        "sequence_id": batch.column("offset"),
        "entry_bytes": pc.add(*sizes),
        "source_partition": partition,
        "source_offset": batch.column("offset"),
        **{name: headers[name] for name in ("principal", "producer_name", "uuid", *INTEGERS[:3])},
    }
    ledgers = pa.repeat(pa.scalar(LEDGER, pa.int64()), n)
    parts = feed.events(common, ledgers, value)
    if known.true_count:
        produced = feed.of_kind("produce_batch", common, ledgers, value)
        produced = {**produced, "producer_id": headers["producer_id"]}
        parts.append({k: pc.filter(v, known) for k, v in produced.items()})
    return together(parts)


def _from_headers(batch: pa.RecordBatch, names: MessagesSettings) -> dict[str, pa.Array]:
    """Text of the headers that have a column of the contract; of several of a name the last one
    counts.
    """
    wanted = {header: column for column, header in names.headers.model_dump().items()}
    found: dict[str, list[str | None]] = {c: [None] * batch.num_rows for c in wanted.values()}
    keys, values = batch.column("names"), batch.column("values")
    starts = keys.offsets.to_numpy()
    flat = keys.flatten().dictionary_encode()
    columns = [wanted.get(name) for name in flat.dictionary.to_pylist()]
    contents = values.flatten()
    owner = np.repeat(np.arange(batch.num_rows), np.diff(starts))
    for i, code in enumerate(flat.indices.to_pylist()):
        column = None if code is None else columns[code]
        if column is not None:
            content = contents[i].as_py()
            found[column][int(owner[i])] = (
                None if content is None else content.decode("utf-8", "backslashreplace")
            )
    return {column: pa.array(texts, pa.string()) for column, texts in found.items()}
