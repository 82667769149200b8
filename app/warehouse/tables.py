"""Every table Weir writes: its columns, their Arrow types and one sentence for each.

Commands, writers and documentation take names and types from here only. Times are bigint
milliseconds or nanoseconds, never timestamps without a zone: those would raise the Delta protocol
above reader 1, writer 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from app.warehouse.views import VIEWS, View
from state import events

__all__ = ["COMMON_OUTPUT", "TABLES", "VIEWS", "Table", "TableColumn", "View", "written_tables"]

TEXT, LONG, SHORT, FLAG, RATE = pa.string(), pa.int64(), pa.int32(), pa.bool_(), pa.float64()
TEXTS = pa.list_(TEXT)
SWITCHES = pa.map_(TEXT, TEXT)
COUNTS = pa.map_(TEXT, LONG)


@dataclass(frozen=True)
class TableColumn:
    """One column of a table: its Arrow type and what it means."""

    name: str
    type: pa.DataType
    meaning: str


@dataclass(frozen=True)
class Table:
    """One Delta table of a warehouse; `sort_by` is the order in which its rows are read best."""

    name: str
    meaning: str
    columns: tuple[TableColumn, ...]
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    job: str | None = None
    default: bool = True
    """False: written only if the job's `extra_outputs` names the table."""

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema, in column order."""
        return pa.schema([(c.name, c.type) for c in self.columns])

    @property
    def names(self) -> tuple[str, ...]:
        """The column names, in order."""
        return tuple(c.name for c in self.columns)


COMMON_OUTPUT: tuple[TableColumn, ...] = (
    TableColumn("job", TEXT, "job that decided"),
    TableColumn("cluster", TEXT, "cluster name"),
    TableColumn("broker", TEXT, "broker whose records led to the row"),
    TableColumn("ts_mono_ns", LONG, "monotonic time of the decision, from the event or timer (ns)"),
    TableColumn("ts_wall_ms", LONG, "wall time of the decision (ms since the epoch, UTC)"),
    TableColumn("rule", TEXT, "stable name of the rule that decided"),
    TableColumn("switches", SWITCHES, "all version parameters in force"),
    TableColumn("params_hash", TEXT, "hash of the job's parameters and configured policies"),
    TableColumn("source_feed", TEXT, "feed of the record that led to the row"),
    TableColumn("row_no", SHORT, "order among the rows of one key and time in this table"),
)
"""Columns that every output row of a job begins with (event contract, section 8)."""


def _throttle_events() -> Table:
    own = (
        TableColumn("cnx_id", TEXT, "client connection that the limiter acted on"),
        TableColumn("producer_id", LONG, "producer that the limiter acted on"),
        TableColumn("producer_name", TEXT, "name of that producer"),
        TableColumn("topic", TEXT, "topic of that producer"),
        TableColumn("action", TEXT,
                    "mark, unmark, or receipt: the wait for the receipt of a mark has ended"),
        TableColumn("throttle_type", TEXT, "type of throttle, by the broker's name for it"),
        TableColumn("reason", TEXT, "reason that PIP-385 gives for the type"),
        TableColumn("reason_number", SHORT, "number of the reason on the wire; null if unmapped"),
        TableColumn("limiter", TEXT, "topic, resource_group, broker, connection or io_thread"),
        TableColumn("transition", TEXT, "ConnectionStateChanged, TypeStateChanged or Dropped"),
        TableColumn("reads_paused", FLAG, "whether reads are paused after this row"),
        TableColumn("culprit_topic", TEXT,
                    "topic whose own limit is used up; null where the limit is shared"),
        TableColumn("trigger_topic", TEXT,
                    "topic of the publish at which the limiter acted; on an unmark that of its "
                    "mark"),
        TableColumn("limiter_name", TEXT,
                    "owner of the limit: topic, group, broker, connection or thread number"),
        TableColumn("collateral_topics", TEXTS,
                    "other topics with a producer on the paused connection, sorted"),
        TableColumn("balance_msgs", LONG, "balance of its message bucket (tokens)"),
        TableColumn("balance_bytes", LONG, "balance of its byte bucket (tokens)"),
        TableColumn("pause_pip_ms", LONG, "pause that PIP-385 would announce (ms); 0 = unknown"),
        TableColumn("pause_model_ns", LONG, "pause that the buckets require at this row (ns)"),
        TableColumn("waiting", SHORT, "producers waiting for the limiter after this row"),
        TableColumn("pause_observed_ns", LONG,
                    "pause seen by the feed, on the row that resumes reads (ns)"),
        TableColumn("request_id", LONG,
                    "throttle command of the mark, unique on the connection; null without one"),
        TableColumn("receipt_state", TEXT,
                    "not_supported, received, timed_out or not_waited; null without the exchange "
                    "and while the receipt is awaited"),
    )
    return Table(
        "throttle_events",
        "Every mark and unmark of a connection by a publish limiter, dropped ones included.",
        COMMON_OUTPUT + own, sort_by=("cluster", "topic", "ts_wall_ms"), job="rate_limits",
    )


def _topic_throttle_stats() -> Table:
    own = (
        TableColumn("topic", TEXT, "topic, a partition being one of its own"),
        TableColumn("window_start_ms", LONG, "start of the window (ms since the epoch)"),
        TableColumn("window_ms", LONG, "length of the window (ms)"),
        TableColumn("limited_times", LONG, "pauses of connections that the topic was on"),
        TableColumn("culprit_times", LONG, "of these, pauses for the topic's own limit"),
        TableColumn("shared_times", LONG,
                    "of these, pauses for a limit that the topic shares: of its group, the broker, "
                    "the connection or the IO thread"),
        TableColumn("collateral_times", LONG, "of these, pauses for a limit of other topics"),
        TableColumn("culprit_ns", LONG, "paused time as culprit, summed over connections (ns)"),
        TableColumn("shared_ns", LONG,
                    "paused time for shared limits, summed over connections (ns)"),
        TableColumn("collateral_ns", LONG,
                    "paused time as victim of other topics, summed over connections (ns)"),
        TableColumn("by_reason", COUNTS, "time each reason was active on a paused connection (ns)"),
        TableColumn("messages", LONG, "messages published"),
        TableColumn("bytes", LONG, "bytes published"),
        TableColumn("limit_msgs", RATE, "message limit of the topic at the window's end (per s)"),
        TableColumn("limit_bytes", RATE, "byte limit of the topic at the window's end (per s)"),
        TableColumn("limited_by_limiter", COUNTS, "limited_times split by the limiter that paused"),
        TableColumn("resource_group", TEXT,
                    "resource group of the topic at the window's end; null without one"),
    )
    return Table(
        "topic_throttle_stats",
        "Per topic and window: number and length of its pauses, by class of the limit.",
        COMMON_OUTPUT + own, sort_by=("cluster", "topic", "window_start_ms"), job="rate_limits",
    )


def _limiter_stats() -> Table:
    own = (
        TableColumn("window_start_ms", LONG, "start of the window (ms since the epoch)"),
        TableColumn("window_ms", LONG, "length of the window (ms)"),
        TableColumn("limiter", TEXT, "topic, resource_group, broker, connection or io_thread"),
        TableColumn("limiter_name", TEXT, "topic, group, broker, connection or thread number"),
        TableColumn("messages", LONG, "messages charged; null without a rate"),
        TableColumn("bytes", LONG, "bytes charged; null without a rate"),
        TableColumn("limit_msgs", RATE, "message limit at the window's end (per s)"),
        TableColumn("limit_bytes", RATE, "byte limit at the window's end (per s)"),
        TableColumn("max_level", LONG, "most requests in flight, or bytes buffered"),
        TableColumn("limit_level", LONG, "limit of that level at the window's end"),
        TableColumn("min_balance_msgs", LONG, "lowest message balance after a charge (tokens)"),
        TableColumn("min_balance_bytes", LONG, "lowest byte balance after a charge (tokens)"),
        TableColumn("throttles", LONG, "marks"),
        TableColumn("max_waiting", SHORT, "most producers waiting at once; null without a queue"),
        TableColumn("utilisation", RATE,
                    "largest of charged per s / limit and level / limit; 1 = at the limit"),
    )
    return Table(
        "limiter_stats",
        "Per limiter with a limit and window: use of the limit, balances, levels.",
        COMMON_OUTPUT + own, sort_by=("cluster", "limiter", "limiter_name", "window_start_ms"),
        job="rate_limits",
    )


def _producer_throttle() -> Table:
    own = (
        TableColumn("cnx_id", TEXT, "client connection of the producer"),
        TableColumn("producer_id", LONG, "producer that the command went to"),
        TableColumn("producer_name", TEXT, "name of that producer"),
        TableColumn("topic", TEXT, "topic of that producer, a partition being one of its own"),
        TableColumn("partition", SHORT, "number of the partition; null = not partitioned"),
        TableColumn("reason", TEXT, "reason that the command carries"),
        TableColumn("start_ms", LONG, "arrival of the command (ms since the epoch)"),
        TableColumn("pause_ms", LONG, "pause that it announces (ms); 0 = unknown"),
        TableColumn("end_ms", LONG, "end of the announced pause (ms since the epoch)"),
        TableColumn("request_id", LONG, "id of the command, unique on the connection"),
        TableColumn("throttled_ms_total", LONG,
                    "sum of announced pauses per connection, topic and reason so far (ms)"),
        TableColumn("sequence_id", LONG, "send that timed out; null on a command"),
        TableColumn("exception", TEXT,
                    "what the client sees: ProducerThrottledException or TimeoutException"),
    )
    return Table(
        "producer_throttle",
        "Throttle commands to clients and timed-out sends (protocol=pip385).",
        COMMON_OUTPUT + own, sort_by=("cluster", "topic", "ts_wall_ms"), job="rate_limits",
    )


def _publish_verdicts() -> Table:
    own = (
        TableColumn("limiter", TEXT, "topic, resource_group or broker"),
        TableColumn("topic", TEXT, "topic of the publish"),
        TableColumn("messages", LONG, "messages charged"),
        TableColumn("bytes", LONG, "bytes charged"),
        TableColumn("messages_ok", FLAG, "whether the message bucket let the charge pass"),
        TableColumn("bytes_ok", FLAG, "whether the byte bucket let the charge pass"),
        TableColumn("balance_msgs", LONG, "message bucket after the charge (tokens)"),
        TableColumn("balance_bytes", LONG, "byte bucket after the charge (tokens)"),
        TableColumn("pause_model_ns", LONG, "pause that the buckets require after the charge (ns)"),
    )
    return Table(
        "publish_verdicts",
        "Every charge of a publish to a limiter and its result.",
        COMMON_OUTPUT + own, sort_by=("cluster", "topic", "ts_wall_ms"), job="rate_limits",
        default=False,
    )


def _chunk_tables() -> tuple[Table, ...]:
    whose = (
        TableColumn("topic", TEXT, "topic, a partition being one of its own"),
        TableColumn("subscription", TEXT, "subscription"),
        TableColumn("consumer", TEXT, "consumer that the broker chose"),
    )
    window = (
        TableColumn("window_start_ms", LONG, "start of the window (ms since the epoch)"),
        TableColumn("window_ms", LONG, "length of the window (ms)"),
    )
    message = (
        TableColumn("uuid", TEXT, "id shared by the chunks of the message"),
        TableColumn("producer_name", TEXT, "producer of its first chunk"),
        TableColumn("sequence_id", LONG, "sequence id of its first chunk"),
        TableColumn("num_chunks", SHORT, "chunks of the message, by its first chunk"),
    )
    messages = (
        *whose, *message,
        TableColumn("first_position", TEXT, "ledger:entry of the first chunk"),
        TableColumn("last_position", TEXT, "ledger:entry of the last chunk"),
        TableColumn("positions", TEXTS, "ledger:entry of every chunk, by chunk id"),
        TableColumn("declared_bytes", LONG, "size that the first chunk declares (bytes)"),
        TableColumn("assembled_bytes", LONG, "sum of the chunks (bytes); null if not known"),
        TableColumn("first_chunk_ms", LONG, "when the first chunk was delivered (ms epoch)"),
        TableColumn("complete_ms", LONG, "when the last chunk was delivered (ms epoch)"),
        TableColumn("assembly_ms", LONG, "time between the two (ms)"),
        TableColumn("publish_time_ms", LONG, "publish time of the first chunk (ms epoch)"),
        TableColumn("payload", pa.binary(), "the message; null without assemble_payload"),
        TableColumn("checksum", LONG, "CRC-32 of the message; null if a payload is missing"),
        TableColumn("integrity", TEXT,
                    "exact, short (fewer bytes than declared), unknown (sizes not known) or "
                    "too_large (above max_payload_bytes: not assembled)"),
        TableColumn("marker_position", TEXT,
                    "ledger:entry of the marker that brought it and is acknowledged with it "
                    "(shared_mode=marker); null without"),
    )
    decisions = (
        *whose,
        TableColumn("uuid", TEXT, "message that the decision is about"),
        TableColumn("chunk_id", SHORT, "chunk that arrived, or last one of a dropped context"),
        TableColumn("num_chunks", SHORT, "chunks of the message, by that chunk"),
        TableColumn("position", TEXT, "ledger:entry of that chunk"),
        TableColumn("outcome", TEXT, "outcome; see the semantics of the job"),
        TableColumn("acks", TEXTS, "positions that the client acknowledges"),
        TableColumn("tracked", TEXTS, "positions that wait for redelivery"),
        TableColumn("orphaned", TEXTS, "positions neither acknowledged nor tracked"),
        TableColumn("permits", SHORT, "flow permits returned at once for the chunk"),
        TableColumn("counter", SHORT, "pending chunked messages by the client's counter"),
        TableColumn("contexts", SHORT, "incomplete messages of the consumer"),
        TableColumn("leaked", SHORT, "counter - contexts"),
        TableColumn("buffered_bytes", LONG, "bytes that the consumer buffers"),
        TableColumn("age_ms", LONG, "age of the context that the decision is about (ms)"),
    )
    levels = (
        *whose, *window,
        TableColumn("contexts", SHORT, "messages that are being assembled"),
        TableColumn("counter", SHORT, "pending chunked messages by the client's counter"),
        TableColumn("leaked", SHORT, "counter - contexts"),
        TableColumn("buffered_bytes", LONG, "bytes that the consumer buffers"),
        TableColumn("declared_bytes", LONG, "declared sizes of those messages (bytes)"),
        TableColumn("oldest_age_ms", LONG, "age of the oldest of them (ms); null without any"),
        TableColumn("fifo_length", SHORT, "uuids in the client's queue of first chunks"),
        TableColumn("permits_lost", SHORT, "permits lost so far by B2, B7 or B8"),
    )
    missing = (
        *whose, *window, *message,
        TableColumn("next_chunk_id", SHORT, "missing chunk"),
        TableColumn("first_position", TEXT, "ledger:entry of the first chunk"),
        TableColumn("last_position", TEXT, "ledger:entry of the newest chunk"),
        TableColumn("first_chunk_ms", LONG, "when the first chunk was delivered (ms epoch)"),
        TableColumn("last_chunk_ms", LONG, "when the newest chunk was delivered (ms epoch)"),
        TableColumn("age_ms", LONG, "time since the first chunk (ms)"),
        TableColumn("buffered_bytes", LONG, "bytes received so far"),
        TableColumn("declared_bytes", LONG, "size that the first chunk declares (bytes)"),
        TableColumn("expires_ms", LONG,
                    "time after which an expiry pass removes it (ms epoch); null = never"),
    )
    topics = (
        whose[0], *window,
        TableColumn("chunks", LONG, "chunks published"),
        TableColumn("chunk_bytes", LONG, "bytes of their entries"),
        TableColumn("chunked_message_rate", RATE, "chunked messages begun per second"),
        TableColumn("msg_chunk_published", FLAG, "whether any chunk was published"),
        TableColumn("producers", SHORT, "distinct producer names that sent chunks"),
        TableColumn("max_contexts", SHORT, "most messages that one consumer assembled at once"),
    )
    job, place = "chunks", ("cluster", "topic", "subscription")
    return (
        Table("chunk_messages", "Every complete chunked message.",
              COMMON_OUTPUT + messages, sort_by=("cluster", "topic", "complete_ms"), job=job),
        Table("chunk_events", "Every decision about a chunk except BUFFERED.",
              COMMON_OUTPUT + decisions, sort_by=(*place, "ts_wall_ms"), job=job),
        Table("chunk_state", "Per consumer and window: its incomplete messages at the end.",
              COMMON_OUTPUT + levels, sort_by=(*place, "window_start_ms"), job=job),
        Table("incomplete_messages",
              "Per window, every incomplete message; the newest window has those that are "
              "incomplete now.",
              COMMON_OUTPUT + missing, sort_by=(*place, "window_start_ms"), job=job),
        Table("chunk_topic_stats", "Per topic and window: chunks published.",
              COMMON_OUTPUT + topics, sort_by=("cluster", "topic", "window_start_ms"), job=job),
    )


def _chunk_payloads() -> tuple[Table, ...]:
    file = TableColumn("file", TEXT, "data file of chunk_payloads")
    return (
        Table(
            "chunk_payloads",
            "Payloads of incomplete messages, outside the state of the query.",
            (
                TableColumn("cluster", TEXT, "cluster name"),
                TableColumn("topic", TEXT, "topic, a partition being one of its own"),
                TableColumn("ledger_id", LONG, "ledger of the chunk"),
                TableColumn("entry_id", LONG, "entry of the chunk"),
                TableColumn("payload", pa.binary(), "the chunk's payload"),
            ),
        ),
        Table(
            "chunk_payload_releases",
            "Rows of chunk_payloads that no message needs any more, by their data file.",
            (file, TableColumn("rows", LONG, "rows that were released")),
        ),
    )


def _producer_id_tables() -> tuple[Table, ...]:
    user = TableColumn("user", TEXT, "name in the principal, what follows its first colon")
    who = (
        user,
        TableColumn("client_id", TEXT, "client id"),
        TableColumn("producer_id", LONG, "producer id (PID)"),
    )
    decisions = (
        *who,
        TableColumn("topic", TEXT, "topic that the id was first seen on"),
        TableColumn("partition", SHORT, "and its partition"),
        TableColumn("verdict", TEXT,
                    "counted, throttled (counted, over the bound) or rejected"),
        TableColumn("bound", RATE, "producer_ids_rate in force (new ids per rate_unit)"),
        TableColumn("bound_source", TEXT, "user, default_user or none (unlimited)"),
        TableColumn("rate", RATE, "sampled rate of counted ids after the decision (per s)"),
        TableColumn("tokens", RATE,
                    "tokens of the quota after the decision; null with sampled_rate"),
        TableColumn("throttle_ms", LONG, "throttle time (ms); 0 = not throttled"),
        TableColumn("live_filters", SHORT, "filters of the user after the decision"),
        TableColumn("filter_created_ms", LONG,
                    "creation of the filter that took the id (ms epoch); null if rejected"),
        TableColumn("recount", FLAG,
                    "whether the id was counted for the user before; null without exact"),
    )
    stats = (
        TableColumn("window_start_ms", LONG, "start of the window (ms since the epoch)"),
        TableColumn("window_ms", LONG, "length of the window (ms)"),
        user,
        TableColumn("new_ids", LONG, "ids counted: verdict counted or throttled"),
        TableColumn("seen_batches", LONG, "batches whose id a filter held"),
        TableColumn("rejected", LONG, "batches rejected"),
        TableColumn("rate", RATE, "sampled rate at the window's end (ids per s)"),
        TableColumn("tokens", RATE, "tokens at the window's end; null with sampled_rate"),
        TableColumn("throttle_time_avg_ms", RATE,
                    "mean throttle time of throttled and rejected batches (ms)"),
        TableColumn("utilisation", RATE, "rate / bound, both per s; null for a bound of 0"),
        TableColumn("live_filters", SHORT, "filters at the window's end"),
        TableColumn("filter_fill", RATE, "largest share of bits set in one; null with exact"),
        TableColumn("estimated_fpp", RATE,
                    "false-positive rate of that fill; null with exact"),
        TableColumn("state_bytes", LONG, "memory of the filters (bytes)"),
    )
    job, place = "producer_ids", ("cluster", "broker", "user")
    return (
        Table("producer_id_decisions", "Every producer id that was new to its user.",
              COMMON_OUTPUT + decisions, sort_by=(*place, "ts_wall_ms"), job=job),
        Table("producer_id_stats", "Per user and window: new ids, quota and filters.",
              COMMON_OUTPUT + stats, sort_by=(*place, "window_start_ms"), job=job),
        Table("producer_id_owners",
              "Owners of producer ids: the latest row of an id is valid.",
              COMMON_OUTPUT + who, sort_by=("cluster", "producer_id", "ts_wall_ms"), job=job),
    )


IDENTITY: tuple[TableColumn, ...] = (
    TableColumn("source_partition", TEXT, "Kafka partition, or file, that held the record"),
    TableColumn("source_offset", LONG, "Kafka offset, or line from 0, of the record"),
)
INGEST = TableColumn("ingest_ms", LONG, "when Weir read the record (ms since the epoch)")


def _events() -> Table:
    contract = tuple(TableColumn(c.name, c.type, c.meaning) for c in events.COLUMNS)
    digest = (
        TableColumn("payload_bytes", LONG, "length of the payload (bytes)"),
        TableColumn("payload_crc32", LONG, "CRC-32 of the payload"),
    )
    day = TableColumn("event_date", pa.date32(),
                      "UTC day of ts_wall_ms, of ingest_ms where that is null")
    return Table(
        "events",
        "The archive: every record that at least one job could apply, repeated and late ones too.",
        (*contract, *digest, *IDENTITY, INGEST, day),
        partition_by=("event_date",), sort_by=("cluster", "topic", "ts_wall_ms"),
    )


def _quarantine() -> Table:
    return Table(
        "quarantine",
        "Records that were not applied: one row per rule that the record broke.",
        (
            TableColumn("reason_code", TEXT, "code of the broken rule"),
            TableColumn("detail", TEXT, "cause, usually the column"),
            TableColumn("job", TEXT, "job that cannot apply the record; null = no job can"),
            TableColumn("source_feed", TEXT, "feed that the record came from"),
            TableColumn("cluster", TEXT, "cluster name"),
            TableColumn("broker", TEXT, "broker identity"),
            TableColumn("seq", LONG, "position in the feed"),
            TableColumn("ts_wall_ms", LONG, "wall time of the record (ms since the epoch)"),
            *IDENTITY,
            TableColumn("raw", TEXT, "text of the record; null for late and repeated records"),
            INGEST,
        ),
        sort_by=("reason_code", "ts_wall_ms"),
    )


def _quality_results() -> Table:
    return Table(
        "quality_results",
        "Results of audits: one row per expectation.",
        (
            TableColumn("run_id", TEXT, "audit that the row belongs to"),
            TableColumn("checked_ms", LONG, "when the audit ran (ms since the epoch)"),
            TableColumn("table", TEXT, "table that was audited"),
            TableColumn("version", LONG, "version of that table"),
            TableColumn("inputs", TEXT,
                        "hash of the expectations and of the versions of all tables that they "
                        "read: while it is the same, there is nothing to audit"),
            TableColumn("expectation", TEXT, "its name in Great Expectations, or its rule"),
            TableColumn("column", TEXT, "columns of the expectation; null = the table"),
            TableColumn("success", FLAG, "whether it held"),
            TableColumn("observed", TEXT, "observed value, as JSON"),
            TableColumn("unexpected_count", LONG, "rows that violate it; null if not about rows"),
        ),
        sort_by=("checked_ms", "table"),
    )


WINDOW = (
    TableColumn("window_start_ms", LONG, "start of the window (ms since the epoch)"),
    TableColumn("window_ms", LONG, "length of the window (ms)"),
)


def _backlog_tables() -> tuple[Table, ...]:
    topic = TableColumn("topic", TEXT, "topic, a partition being one of its own")
    passed = TableColumn("pass_ms", LONG, "time of the check pass (ms since the epoch)")
    checks = (
        topic, passed,
        TableColumn("backlog_bytes", LONG, "size of the backlog by ledger sizes (bytes)"),
        TableColumn("limit_bytes", LONG, "limit of that size (bytes); null = none"),
        TableColumn("size_usage", RATE, "size / limit; null without a limit above 0"),
        TableColumn("age_s", LONG,
                    "age of the oldest unacknowledged message (s); -1 = none or unknown"),
        TableColumn("limit_s", LONG, "limit of that age (s); null = none"),
        TableColumn("age_state", TEXT,
                    "known, no_backlog, no_durable_cursor or no_estimate"),
        TableColumn("time_usage", RATE, "age / limit; null without a limit above 0 or an age"),
        TableColumn("oldest_subscription", TEXT, "subscription with the oldest message"),
        TableColumn("oldest_position", TEXT, "mark-delete position of that age"),
        TableColumn("oldest_timestamp_ms", LONG, "time that the age counts from (ms epoch)"),
        TableColumn("timestamp_source", TEXT,
                    "broker_time, publish_time, ledger_close, kept or none"),
        TableColumn("exceeded_size", FLAG, "whether the size is at its limit or above"),
        TableColumn("exceeded_time", FLAG, "whether the age is above its limit"),
        TableColumn("limit_source_size", TEXT,
                    "level that set the size limit: topic, namespace, broker"),
        TableColumn("limit_source_time", TEXT,
                    "level that set the age limit: topic, namespace, broker"),
        TableColumn("action", TEXT,
                    "none, deduplication_snapshot, disconnect_producers, evict_size or evict_time"),
        TableColumn("retention_policy", TEXT, "policy of the quota that acted; null with none"),
        TableColumn("producers_disconnected", SHORT,
                    "producers of the topic that were disconnected"),
    )
    evictions = (
        topic,
        TableColumn("quota_type", TEXT, "size or time"),
        TableColumn("subscription", TEXT, "subscription whose messages were skipped"),
        TableColumn("from_position", TEXT, "mark-delete position before"),
        TableColumn("to_position", TEXT, "predicted mark-delete position after"),
        TableColumn("entries_skipped", LONG, "entries between the two"),
        TableColumn("rounds", LONG, "rounds of the eviction; null by time, precise"),
        TableColumn("factor", RATE, "share of the backlog that its first round skipped"),
        TableColumn("target_bytes", LONG, "target size (bytes); null by time"),
        TableColumn("expire_older_than_s", LONG,
                    "age above which messages are skipped (s); null by size"),
        TableColumn("backlog_before", LONG,
                    "size of the topic's backlog before the eviction (bytes)"),
        TableColumn("backlog_after", LONG,
                    "size of the topic's backlog after the eviction (bytes)"),
        TableColumn("phantom", FLAG, "whether the call skipped nothing"),
        TableColumn("count_delta", SHORT, "increment of the counter of evictions"),
    )
    subscriptions = (
        topic, passed,
        TableColumn("subscription", TEXT, "subscription"),
        TableColumn("durable", FLAG, "whether it outlives its consumers"),
        TableColumn("mark_delete", TEXT, "its mark-delete position"),
        TableColumn("backlog_entries", LONG, "entries after it"),
        TableColumn("backlog_bytes", LONG, "their size by ledger sizes (bytes)"),
        TableColumn("age_s", LONG, "age of the first of them (s); null if unknown or none"),
        TableColumn("growth_rate", RATE, "median growth over the last checks (bytes per s)"),
        TableColumn("drain_rate", RATE, "entries per s that the mark-delete advanced by"),
        TableColumn("time_to_drain_s", RATE,
                    "time until the backlog is empty (s); null if it does not fall"),
        TableColumn("time_to_quota_s", RATE,
                    "time until the nearer quota is reached (s); 0 = exceeded, null = none"),
    )
    refusals = (
        topic,
        TableColumn("producer_id", LONG, "producer that was refused"),
        TableColumn("error", TEXT, "error that its client receives"),
        TableColumn("quota_type", TEXT, "quota that is exceeded: size or time"),
    )
    job, place = "backlog", ("cluster", "topic")
    return (
        Table("backlog_checks", "Per topic and check pass: size and age against their quotas.",
              COMMON_OUTPUT + checks, sort_by=(*place, "pass_ms"), job=job),
        Table("backlog_evictions", "Every eviction, one row per subscription that it moved.",
              COMMON_OUTPUT + evictions, sort_by=(*place, "ts_wall_ms"), job=job),
        Table("backlog_subscriptions",
              "Per subscription and check pass: backlog, age and forecasts.",
              COMMON_OUTPUT + subscriptions, sort_by=(*place, "subscription", "pass_ms"), job=job),
        Table("producer_refusals", "Producers that connected while a quota was exceeded.",
              COMMON_OUTPUT + refusals, sort_by=(*place, "ts_wall_ms"), job=job),
    )


def _cache_tables() -> tuple[Table, ...]:
    which = (
        TableColumn("policy", TEXT, "eviction strategy"),
        TableColumn("max_bytes", LONG, "size of the cache (bytes); null = no size check"),
    )
    entry = (
        TableColumn("topic", TEXT, "topic, a partition being one of its own"),
        TableColumn("ledger_id", LONG, "ledger of the entry"),
        TableColumn("entry_id", LONG, "number of the entry in it"),
    )
    stats = (
        *which, *WINDOW,
        TableColumn("topic", TEXT, "topic; null = the whole broker"),
        TableColumn("hits", LONG, "reads that found their entry"),
        TableColumn("misses", LONG, "reads that went to storage"),
        TableColumn("hit_bytes", LONG, "bytes read from the cache"),
        TableColumn("miss_bytes", LONG, "bytes read from storage"),
        TableColumn("hit_ratio", RATE, "hits / reads; null without reads"),
        TableColumn("inserted", LONG, "entries inserted"),
        TableColumn("evicted_time", LONG, "entries evicted for their age"),
        TableColumn("evicted_size", LONG, "entries evicted for the cache's size"),
        TableColumn("invalidated", LONG, "entries removed explicitly"),
        TableColumn("evicted_wanted", LONG, "entries evicted while reads were expected"),
        TableColumn("extended", LONG, "times an entry was kept for another time-to-live"),
        TableColumn("stashed", LONG, "entries set aside by the stash"),
        TableColumn("passes_size", LONG, "passes that had to free memory; null by topic"),
        TableColumn("entries_visited", LONG, "entries that passes looked at; null by topic"),
        TableColumn("entries", LONG, "entries at the window's end"),
        TableColumn("used_bytes", LONG, "bytes of them"),
        TableColumn("wanted_bytes", LONG, "of these, bytes with expected reads"),
        TableColumn("non_evictable_bytes", LONG, "the same and entries without a counter"),
        TableColumn("max_used_bytes", LONG, "most bytes in the window; null by topic"),
    )
    evictions = (
        *which, *entry,
        TableColumn("entry_bytes", LONG, "size of the entry (bytes)"),
        TableColumn("cause", TEXT, "time, size or invalidated"),
        TableColumn("expected_remaining", LONG, "reads still expected; null without a counter"),
        TableColumn("requeue_count", LONG, "times that it was kept for another time-to-live"),
        TableColumn("accessed", FLAG, "whether it was read since its insertion or last extension"),
        TableColumn("age_ns", LONG, "time since its insertion (ns)"),
        TableColumn("used_bytes_before", LONG, "bytes of the cache before the removal"),
    )
    reads = (
        *which, entry[0],
        TableColumn("subscription", TEXT, "subscription that read"),
        TableColumn("position", TEXT, "ledger:entry that was read"),
        TableColumn("hit", FLAG, "whether it was in the cache"),
        TableColumn("expected_after", LONG, "reads expected afterwards; null without a counter"),
        TableColumn("reader_kind", TEXT, "tail, catch_up or replay"),
    )
    job = "entry_cache"
    return (
        Table("cache_stats",
              "Per cache and window, in total and by topic: hits, evictions, levels.",
              COMMON_OUTPUT + stats,
              sort_by=("cluster", "broker", "policy", "window_start_ms"), job=job),
        Table("cache_evictions", "Every entry that left a cache.", COMMON_OUTPUT + evictions,
              sort_by=("cluster", "broker", "policy", "ts_wall_ms"), job=job, default=False),
        Table("cache_reads", "Every read of an entry.", COMMON_OUTPUT + reads,
              sort_by=("cluster", "broker", "policy", "ts_wall_ms"), job=job, default=False),
    )


def _cache_bakeoff() -> Table:
    return Table(
        "cache_bakeoff",
        "Results of `bakeoff`: one row per comparison, broker, eviction strategy and size.",
        (
            TableColumn("compared_ms", LONG, "when the comparison was made (ms since the epoch)"),
            TableColumn("trace", TEXT, "trace of the comparison: the archive, or files"),
            TableColumn("cluster", TEXT, "cluster name; null = all brokers together"),
            TableColumn("broker", TEXT, "broker, each with its own cache; null = all together"),
            TableColumn("policy", TEXT, "eviction strategy; belady knows what will be read"),
            TableColumn("max_bytes", LONG, "size of each broker's cache (bytes)"),
            TableColumn("settings", SWITCHES, "further settings of these caches"),
            TableColumn("sample_rate", RATE, "share of the entries that was simulated; 1 = all"),
            TableColumn("hits", LONG, "reads that found their entry"),
            TableColumn("misses", LONG, "reads that went to storage"),
            TableColumn("hit_ratio", RATE, "hits / reads, 0 to 1; null without reads"),
            TableColumn("hit_ratio_error", RATE,
                        "difference of sampled and exact ratios of this strategy where both were "
                        "simulated; null = exact, or not measured"),
            TableColumn("hit_bytes", LONG, "bytes read from the cache"),
            TableColumn("storage_bytes", LONG, "bytes read from storage"),
            TableColumn("wanted_bytes", LONG, "most bytes held at once with reads expected"),
            TableColumn("max_used_bytes", LONG, "most bytes that it held at once"),
            TableColumn("evicted_wanted", LONG, "entries evicted while reads were expected"),
            TableColumn("evicted_wanted_bytes", LONG, "bytes of them"),
            TableColumn("passes", LONG, "passes that had to free memory"),
            TableColumn("work", LONG, "entries that passes looked at"),
            TableColumn("switches", SWITCHES, "version parameters of the job in force"),
            TableColumn("params_hash", TEXT,
                        "hash of the job's parameters and configured policies"),
        ),
        sort_by=("compared_ms", "cluster", "broker", "policy", "max_bytes"),
    )


def _producer_id_quota_advice() -> Table:
    return Table(
        "producer_id_quota_advice",
        "Quota that each user needs: one row per user and advice.",
        (
            TableColumn("advised_ms", LONG, "time of the advice (ms since the epoch)"),
            TableColumn("cluster", TEXT, "cluster name"),
            TableColumn("user", TEXT, "name in the principal, what follows its first colon"),
            TableColumn("windows", LONG, "statistics windows of the user in the archive"),
            TableColumn("new_ids", LONG,
                        "ids counted in them without a quota; one that two brokers see counts for"
                        " each"),
            TableColumn("rate_in_force", RATE,
                        "producer_ids_rate at the user's last new id; null = unlimited"),
            TableColumn("rate_advised", RATE,
                        "smallest producer_ids_rate that throttles or rejects an id in at most "
                        "the accepted share of the windows"),
        ),
        sort_by=("advised_ms", "cluster", "user"),
    )


def _alerts() -> Table:
    return Table(
        "alerts",
        "State changes of alerts, in event time: the latest row of an alert and labels is valid.",
        (
            TableColumn("alert", TEXT, "name of the alert rule"),
            TableColumn("labels", SWITCHES, "labels of the alert, for example cluster and topic"),
            TableColumn("state", TEXT,
                        "pending, firing, resolved, or inactive: it ended before it fired"),
            TableColumn("at_ms", LONG, "event time of the change (ms since the epoch)"),
            TableColumn("since_ms", LONG, "event time from which the condition held (ms)"),
            TableColumn("value", RATE, "largest value of the rule while the condition held"),
            TableColumn("severity", TEXT, "severity of the rule"),
            TableColumn("summary", TEXT, "text of the alert"),
            TableColumn("runbook", TEXT, "page with the instructions"),
            TableColumn("checked_ms", LONG, "when the check ran (ms since the epoch)"),
            TableColumn("number", LONG, "number of the change, from 1: the greatest is the latest"),
        ),
        sort_by=("alert", "at_ms"),
    )


TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        _throttle_events(), _topic_throttle_stats(), _limiter_stats(), _producer_throttle(),
        _publish_verdicts(), *_chunk_tables(), *_chunk_payloads(),
        *_producer_id_tables(), _producer_id_quota_advice(), *_backlog_tables(),
        *_cache_tables(), _cache_bakeoff(),
        _events(), _quarantine(), _quality_results(), _alerts(),
    )
}


def written_tables(job: str, extra_outputs: tuple[str, ...] = ()) -> tuple[Table, ...]:
    """The tables that a job writes: those on by default and those named by `extra_outputs`."""
    return tuple(
        t for t in TABLES.values() if t.job == job and (t.default or t.name in extra_outputs)
    )
