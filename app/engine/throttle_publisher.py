"""The throttle feed: publishes every throttle command to a Kafka topic, in its micro-batch.

The commands of a batch are in the topic before its rows are in the tables. If the run ends in
between, the next start repeats the batch from the same records and state and sends the same bytes
again: no command is lost, and a repetition has the same key and value. Request ids begin anew when
a connection is reopened, so the key also has the decision's time and `row_no`.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from app.errors import UserError
from app.sources.kafka.kafka_probe import of_client, topics_or_refusal
from app.sources.kafka.knocking import answering
from app.sources.ports import refuse_wrong
from udfs import wire

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.throttle_feed import ThrottleFeedSettings

COMMANDS = "producer_throttle"
"""The table of commands and of sends that timed out."""
KEY = ("cluster", "broker", "cnx_id", "request_id", "ts_mono_ns", "row_no")
VALUE = (
    "cluster",
    "broker",
    "cnx_id",
    "producer_id",
    "producer_name",
    "topic",
    "partition",
    "reason",
    "request_id",
    "start_ms",
    "pause_ms",
    "end_ms",
    "ts_mono_ns",
    "rule",
)
ORDER = ("cluster", "broker", "ts_mono_ns", "row_no")
MESSAGES = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""The columns of Spark's Kafka sink."""
CONTENT_TYPE = {"key": "content-type", "value": b"application/json"}


class ThrottleFeed:
    """Publishes the commands of micro-batches, on the driver."""

    def __init__(self, spark: SparkSession, settings: ThrottleFeedSettings) -> None:
        self._spark = spark
        self._topic = settings.topic
        self._options = settings.writer_options()
        self._fields = settings.fields.numbers()

    def publish(self, rows: pa.Table) -> None:
        """Send the commands among rows of `producer_throttle`; returns when they are in the topic."""
        found = messages(rows, self._fields)
        if not found.num_rows:
            return
        refuse_wrong(partial(answering, of_client(self._options)))
        # One task, so that a partition of the topic has its commands in their order.
        frame = self._spark.createDataFrame(found).coalesce(1)
        frame.write.format("kafka").options(**self._options).option("topic", self._topic).save()


def messages(rows: pa.Table, fields: wire.Fields = wire.PROPOSED) -> pa.Table:
    """Kafka records of the commands among rows of `producer_throttle`, in the order of ORDER."""
    sent = pc.and_(pc.is_valid(rows["request_id"]), pc.is_null(rows["exception"]))
    rows = rows.select(sorted({*KEY, *VALUE, *ORDER})).filter(sent)
    rows = rows.sort_by([(name, "ascending") for name in ORDER])
    return pa.Table.from_pylist([_message(row, fields) for row in rows.to_pylist()], MESSAGES)


def _message(row: dict[str, Any], fields: wire.Fields) -> dict[str, Any]:
    command = wire.ThrottleCommand(
        row["request_id"], row["producer_id"], row["reason"], row["pause_ms"] or 0
    )
    value = {name: row[name] for name in VALUE}
    value["reason_number"] = wire.reason_number(row["reason"])
    return {
        "key": _json({name: row[name] for name in KEY}),
        "value": _json(value),
        "headers": [
            {"key": "command", "value": wire.encode_command(command, fields)},
            CONTENT_TYPE,
        ],
    }


def _json(values: dict[str, Any]) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode()


def check(feed: ThrottleFeedSettings) -> None:
    """Raise UserError if the feed's cluster does not answer or does not have the topic."""
    options = feed.writer_options()
    servers = options["kafka.bootstrap.servers"]
    found = topics_or_refusal(options, "throttle_feed.options")
    if found is not None and feed.topic not in found:
        raise UserError(
            f"throttle_feed.topic: topic {feed.topic} does not exist at {servers}\n"
            "create it before the start; docs/throttle-feed.md describes its settings"
        )
