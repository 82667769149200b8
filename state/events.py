"""The columns and kinds of the event contract, as all of Weir names them.

One wide record, one kind of event per record. `app.contract.event_contract` parses and validates records in
this layout, the cores read them, the archive stores them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

NULL = np.int64(-(2**63))
"""Null of 64-bit columns that cannot have it as a value."""
EVERY_BROKER = "*"
"""As a broker: all brokers of the cluster."""
QUOTA_TYPES = ("produce", "fetch", "request", "controller_mutation")
"""Types of Kafka's client quotas."""
TOKENS = QUOTA_TYPES[3]
"""The one that is measured by tokens, which can be below 0."""
TOO_LATE, DUPLICATE, OUT_OF_RANGE = "TOO_LATE", "DUPLICATE_RECORD", "CLOCK_OUT_OF_RANGE"
"""Why a job, or the clock of a feed, refuses a record that keeps the rules."""
MONO = "ts_mono_ns"
WALL = "ts_wall_ms"


@dataclass(frozen=True)
class Column:
    """One column of an event record: its Arrow type and what it means."""

    name: str
    type: pa.DataType
    meaning: str


def _columns() -> tuple[Column, ...]:
    text, long, short, flag = pa.string(), pa.int64(), pa.int32(), pa.bool_()
    return (
        Column("event_type", text, "kind of the event"),
        Column("source_feed", text, "feed that the record came from, kept for provenance"),
        Column("cluster", text, "cluster name"),
        Column("broker", text, "broker identity, the scope of both clocks"),
        Column("seq", long, "position in the feed: tie-break and duplicate check"),
        Column("ts_mono_ns", long, "monotonic time of the broker (ns)"),
        Column("ts_wall_ms", long, "wall time (ms since the epoch, UTC)"),
        Column("cnx_id", text, "client connection"),
        Column("supports_throttle", flag, "client announced supports_throttle_producer_commands"),
        Column(
            "reports_pauses",
            flag,
            "the feed writes reads_paused and reads_resumed of the connection; null = false",
        ),
        Column("io_thread", short, "IO thread of the broker that serves the connection"),
        Column("principal", text, "authenticated identity, for example User:alice"),
        Column("client_id", text, "client id (Kafka)"),
        Column("topic", text, "topic: Pulsar [scheme://]tenant/namespace/name, or a Kafka name"),
        Column("partition", short, "partition number; null = not partitioned"),
        Column("producer_id", long, "Pulsar: id within the connection; Kafka: PID, -1 = none"),
        Column("producer_name", text, "producer name"),
        Column("sequence_id", long, "sequence id (Kafka: base sequence)"),
        Column("ledger_id", long, "ledger"),
        Column("entry_id", long, "entry in the ledger; Kafka: base offset"),
        Column("entry_bytes", long, "stored size, metadata included (bytes)"),
        Column("num_messages", short, "messages in the batch; null = 1"),
        Column("uuid", text, "id shared by the chunks of one message"),
        Column("chunk_id", short, "index of the chunk, from 0"),
        Column("num_chunks", short, "chunks of the message; chunked only if above 1"),
        Column("total_chunk_bytes", long, "declared size of the whole message (bytes)"),
        Column("payload", pa.binary(), "chunk payload (base64 in JSON)"),
        Column("marker_ids", pa.list_(text), "positions listed by a marker message"),
        Column("publish_time_ms", long, "publish time set by the producer (ms since the epoch)"),
        Column("broker_time_ms", long, "entry timestamp of the broker (ms since the epoch)"),
        Column("subscription", text, "subscription or cursor"),
        Column("sub_type", text, "exclusive, failover, shared or key_shared"),
        Column("consumer", text, "consumer"),
        Column("ack_cumulative", flag, "cumulative acknowledgement; null = false"),
        Column("durable", flag, "false = reader; null = true"),
        Column("mark_delete", text, "ledger:entry up to which everything is acknowledged"),
        Column("read_pos", text, "ledger:entry read next; null = not reading"),
        Column("active", flag, "cursor counts for caching; null = true"),
        Column("ledger_entries", long, "entries in the ledger"),
        Column("ledger_bytes", long, "size of the ledger (bytes)"),
        Column("ledger_close_ms", long, "close time of the ledger (ms epoch); null = open"),
        Column("request_id", long, "throttle command that a receipt answers"),
        Column("policy_json", text, "policy document: limits that apply from this event on"),
        Column(
            "gap_from_mono_ns",
            long,
            "monotonic time of the first dropped event (ns); null = since ever",
        ),
        Column(
            "gap_from_wall_ms",
            long,
            "wall time of the first dropped event (ms since the epoch); null = since ever",
        ),
        Column("dropped", long, "events that were dropped; null = not known"),
        Column(
            "acked_ranges",
            text,
            "entries acknowledged one by one beyond mark_delete:"
            " `ledger:first..last`, joined by commas; null = none",
        ),
        Column(
            "expired_messages",
            long,
            "messages that expired unread, counted since the broker loaded the topic",
        ),
        Column("problem", text, "what could not be used of a polled document, and why"),
        Column("log_start", long, "first offset that a Kafka log still has"),
        Column(
            "unread",
            long,
            "records at or after a group's offset, counted by a read to the end; 0 where a"
            " group is no longer followed (Kafka)",
        ),
        Column(
            "group_state",
            text,
            "no_offset, unknown_group, share_group or empty_id; of its consumers stable,"
            " rebalancing, empty or dead; known = it ends; open_transaction = its offset is the last"
            " stable one, pending_offsets = its next one is in a transaction, with the producer_id,"
            " the transactional id as producer_name and the begin as publish_time_ms (Kafka)",
        ),
        Column(
            "client_host",
            text,
            "host of the consumer that has client_id; empty: no member has the partition (Kafka)",
        ),
        Column("publishes", long, "publish requests that a digest sums up"),
        Column(
            "digest_from_mono_ns",
            long,
            "monotonic time of the first publish of a digest (ns); null = not known",
        ),
        Column(
            "digest_from_wall_ms",
            long,
            "wall time of the first publish of a digest (ms since the epoch); null = not known",
        ),
        Column("api", text, "name of a request, such as PRODUCE or FETCH (Kafka)"),
        Column(
            "charged_bytes",
            long,
            "size that a quota on bytes is charged with (bytes); null = not known (Kafka)",
        ),
        Column("handler_time_ns", long, "time that the request quota is charged with (ns; Kafka)"),
        Column("mutations", long, "partitions that a request creates or deletes (Kafka)"),
        Column(
            "throttle_ms", long, "throttle time that the broker answered (ms); null = not known"
        ),
        Column("exempt", flag, "exempt from the request quota; null = false (Kafka)"),
        Column("quota_type", text, f"{', '.join(QUOTA_TYPES[:-1])} or {TOKENS} (Kafka)"),
        Column(
            "value_milli",
            long,
            "measured rate (thousandths of bytes, percent or partitions per second); of"
            f" {TOKENS} its tokens (thousandths)",
        ),
        Column(
            "topic_bytes",
            text,
            "bytes of a request by topic, a JSON object; at most 64 topics, the rest under an"
            " empty name; a text that is none counts for no topic (Kafka)",
        ),
        Column(
            "bound_milli",
            long,
            "limit that the broker applies (thousandths of its unit); null = not known",
        ),
        Column(
            "throttle_avg_milli",
            long,
            "average throttle time of the sensor (thousandths of a ms); null = none",
        ),
        Column(
            "group_type",
            text,
            "type of a group: classic, consumer, share or streams; null = not known (Kafka)",
        ),
        Column("group_epoch", long, "epoch of a group's members and subscriptions (Kafka)"),
        Column(
            "assignment_epoch",
            long,
            "epoch of a group's target assignment; below group_epoch = a new one is due (Kafka)",
        ),
        Column("api_version", short, "version of a request; null = not known (Kafka)"),
        Column(
            "remarks",
            text,
            "what the broker shows of a cursor that keeps its backlog, in words; null = nothing",
        ),
    )


COLUMNS: tuple[Column, ...] = _columns()
SCHEMA: pa.Schema = pa.schema([(c.name, c.type) for c in COLUMNS])
COMMON: tuple[str, ...] = ("event_type", "source_feed", "cluster", "broker")
"""Columns that no record may leave null."""


@dataclass(frozen=True)
class Kind:
    """One kind of event: what it means and what it must carry. `state.jobs` has its readers."""

    name: str
    meaning: str
    required: tuple[str, ...] = ()


def _kinds() -> tuple[Kind, ...]:
    entry = ("topic", "ledger_id", "entry_id")
    producer = ("cnx_id", "topic", "producer_id")
    consumer = ("topic", "subscription", "consumer")
    cursor = ("topic", "subscription")
    return (
        Kind("broker_started", "broker process started or restarted"),
        Kind("connection_opened", "client connection opened", ("cnx_id",)),
        Kind("connection_closed", "client connection closed", ("cnx_id",)),
        Kind("producer_created", "producer created on a connection", producer),
        Kind("producer_closed", "producer closed", producer),
        Kind("consumer_created", "consumer created", consumer),
        Kind("consumer_closed", "consumer closed", consumer),
        Kind(
            "publish", "publish request accepted, charged to the limits", (*producer, "entry_bytes")
        ),
        Kind("entry_added", "entry persisted, ends one request in flight", (*entry, "entry_bytes")),
        Kind("reads_paused", "broker stopped reading a connection, as observed", ("cnx_id",)),
        Kind("reads_resumed", "broker reads a connection again, as observed", ("cnx_id",)),
        Kind(
            "throttle_receipt", "client acknowledged a throttle command", ("cnx_id", "request_id")
        ),
        Kind(
            "send_timeout",
            "a send failed in the client by timeout",
            ("topic", "producer_id", "sequence_id"),
        ),
        Kind(
            "dispatch",
            "entry delivered to a consumer",
            ("topic", "subscription", "consumer", "ledger_id", "entry_id"),
        ),
        Kind("ack", "entry acknowledged", (*cursor, "ledger_id", "entry_id")),
        Kind(
            "entry_read",
            "a cursor asks for an entry",
            (*cursor, "ledger_id", "entry_id", "entry_bytes"),
        ),
        Kind("entry_released", "delivered copy released", entry),
        Kind("replay_queued", "entry put in the replay queue", (*cursor, "ledger_id", "entry_id")),
        Kind(
            "entry_invalidated",
            "explicit removal from the cache; whole ledger without entry_id",
            ("topic", "ledger_id"),
        ),
        Kind("cursor_state", "position of a cursor; carries mark_delete or read_pos", cursor),
        Kind("cursor_deleted", "cursor or subscription removed", cursor),
        Kind(
            "ledger_state",
            "size of a ledger",
            ("topic", "ledger_id", "ledger_entries", "ledger_bytes"),
        ),
        Kind("ledger_deleted", "ledger trimmed", ("topic", "ledger_id")),
        Kind(
            "produce_batch",
            "Kafka produce handled by the partition leader",
            ("principal", "topic", "partition", "producer_id"),
        ),
        Kind("producer_id_assigned", "answer to INIT_PRODUCER_ID", ("principal", "producer_id")),
        Kind("policy", "limits change", ("policy_json",)),
        Kind("gap", "the feed has lost events of its broker up to this time"),
        Kind(
            "poll",
            "a poll of a cluster has ended that began at `gap_from_wall_ms`: how much it left out"
            " (`dropped`), and its first `problem`",
        ),
        Kind(
            "bad_document",
            "a polled document, or a part of one, that could not be used; goes to quarantine",
            ("problem",),
        ),
        Kind(
            "group_state",
            "state of a Kafka group without an offset, before an open transaction, or of its"
            " consumers; of a whole group without a topic",
            ("subscription", "group_state"),
        ),
        Kind(
            "publish_digest",
            "publishes of a producer up to this time, summed up in place of a record for each:"
            " `num_messages` and `entry_bytes` are those of all",
            (*producer, "publishes", "num_messages", "entry_bytes"),
        ),
        Kind("client_request", "request of a client, answered by a Kafka broker", ("api",)),
        Kind(
            "client_rate",
            "rate of a client as a Kafka broker measures it; principal and client_id are the"
            " tags of its sensor, empty for one without",
            ("quota_type", "value_milli"),
        ),
    )


KINDS: tuple[Kind, ...] = _kinds()
"""In the order that breaks ties between records of one time (contract section 2)."""
KIND_INDEX: dict[str, int] = {kind.name: i for i, kind in enumerate(KINDS)}
