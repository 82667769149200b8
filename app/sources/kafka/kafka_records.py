"""Kafka topics whose values are JSON records.

`source.options` are the options of Spark's Kafka source (`subscribe`, `startingOffsets`,
`maxOffsetsPerTrigger`, …) and `kafka.*` options of the client. `${env:NAME}` is resolved here, not
earlier. A record is identified by its partition and offset; if several topics are read, the
partition is named with its topic.
"""

from __future__ import annotations

import json
import re
from collections.abc import Set
from functools import partial
from typing import TYPE_CHECKING

from app.errors import UserError
from app.sources.kafka import topic_ids
from app.sources.kafka.kafka_probe import (
    later_than,
    of_client,
    record_bytes,
    topics,
    topics_or_refusal,
)
from app.sources.kafka.knocking import answering
from app.sources.ports import Unreachable, refuse_wrong
from app.sources.raw import Raw, Shares
from app.tables import checkpoints

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamReader

    from app.config.location import Location
    from app.config.source import SourceSettings

MOST_MS = (2**63 - 1) // 1000
"""The largest timestamp of a record that Spark can read: it counts microseconds."""
DEFAULTS = {
    # Everything that the topic holds; Spark's own default would silently skip it.
    "startingOffsets": "earliest",
    # The query waits for a restarting broker, a second at a time, before it fails.
    "fetchOffset.numRetries": "60",
    "fetchOffset.retryIntervalMs": "1000",
}
SHOWN = 8


def check(feed: SourceSettings, warehouse: Location) -> None:
    """UserError for a cluster that does not answer, and for topics that it lacks."""
    options = feed.reader_options()
    servers = options["kafka.bootstrap.servers"]
    found = topics_or_refusal(options, "source.options")
    if found is None:
        return
    there = ", ".join(sorted(found)[:SHOWN]) + (", …" if len(found) > SHOWN else "")
    if "subscribePattern" in options:
        pattern = options["subscribePattern"]
        if not any(re.fullmatch(pattern, name) for name in found):
            raise UserError(
                f"source.options.subscribePattern: no topic at {servers} matches {pattern}\n"
                f"topics there: {there or 'none'}"
            )
    for name in chosen(options):
        if name not in found:
            raise UserError(
                f"source.options: topic {name} does not exist at {servers}\n"
                f"topics there: {there or 'none'}"
            )
    topic_ids.check(feed, warehouse, _read(options, found))


def claim(feed: SourceSettings, warehouse: Location) -> None:
    """Record which topics the warehouse reads."""
    options = feed.reader_options()
    try:
        found = topics(options)
    except Unreachable:
        return  # the queries meet it as well; the next start records them
    topic_ids.claim(feed, warehouse, _read(options, found or frozenset()))


def _read(options: dict[str, str], there: Set[str]) -> list[str]:
    """The topics of a cluster that the options select."""
    pattern, names = options.get("subscribePattern"), chosen(options)
    return sorted(
        name for name in there if name in names or (pattern and re.fullmatch(pattern, name))
    )


def read(reader: DataStreamReader, feed: SourceSettings, warehouse: Location) -> Raw:
    """The values of the topics."""
    from pyspark.sql.functions import col, concat_ws

    options = stream_options(feed)
    divided = shares(options)
    partition = col("partition").cast("string")
    if divided.with_topic:
        partition = concat_ws("-", "topic", partition)
    return Raw(
        reader.format("kafka")
        .options(**options)
        .load()
        .select("value", partition.alias("source_partition"), col("offset").alias("source_offset")),
        shares=divided,
    )


def stream_options(feed: SourceSettings) -> dict[str, str]:
    """Options of Spark's Kafka source: the configured ones over the defaults.

    A trigger is bounded by records, and by bytes through the size of the newest records. Spark
    takes a share of each partition in proportion to its waiting records.
    """
    options = feed.reader_options()
    refuse_wrong(partial(answering, of_client(options)))
    bound: dict[str, str] = {}
    if "maxoffsetspertrigger" not in {key.lower() for key in options}:
        most = feed.max_records_per_trigger
        mean_bytes = record_bytes(options, chosen(options))
        if mean_bytes:
            most = min(most, max(int(feed.max_bytes_per_trigger / mean_bytes), 1))
        bound = {"maxOffsetsPerTrigger": str(most)}
    return {**DEFAULTS, **bound, **options}


def shares(options: dict[str, str]) -> Shares:
    """How Spark divides a trigger among the partitions, by the options of `stream_options`."""
    most = next(value for key, value in options.items() if key.lower() == "maxoffsetspertrigger")
    return Shares(int(most), with_topic=names_topics(options))


def names_topics(options: dict[str, str]) -> bool:
    """Whether a partition is named with its topic: not where the options name one topic."""
    return len(chosen(options)) != 1


def chosen(options: dict[str, str]) -> list[str]:
    """The topics that the options name; none for a pattern."""
    if "assign" in options:
        try:
            return sorted(json.loads(options["assign"]))
        except (ValueError, TypeError):
            raise UserError(
                "source.options.assign: is not a JSON object of topics and partitions\n"
                'for example {"events": [0, 1]}'
            ) from None
    return [name.strip() for name in options.get("subscribe", "").split(",") if name.strip()]


def place_beyond_time(feed: SourceSettings, warehouse: Location, query: str) -> str | None:
    """Topic, partition, offset and timestamp of the first record of a planned batch that Spark
    cannot read.
    """
    ended = checkpoints.last_ended(warehouse, query)
    begin, end = (checkpoints.offsets(warehouse, query, batch) for batch in (ended, ended + 1))
    return later_than(feed.reader_options(), begin, end, MOST_MS)
