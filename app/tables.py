"""Every table Weir writes: its columns, their Arrow types and one sentence for each.

Commands, writers and documentation take names and types from here only. Times are bigint
milliseconds or nanoseconds, never timestamps without a zone: those would raise the Delta protocol
above reader 1, writer 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from app.views import VIEWS, View
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
    """One Delta table of a warehouse; `sort_by` is the order that compaction gives its files."""

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
                    "topic whose bucket ran out, else the topic of the triggering publish"),
        TableColumn("collateral_topics", TEXTS,
                    "other topics with a producer on the paused connection, sorted"),
        TableColumn("balance_msgs", LONG, "balance of its message bucket (tokens)"),
        TableColumn("balance_bytes", LONG, "balance of its byte bucket (tokens)"),
        TableColumn("pause_pip_ms", LONG, "pause that PIP-385 would announce (ms); 0 = unknown"),
        TableColumn("pause_model_ns", LONG, "pause that the buckets ask for at this row (ns)"),
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
        TableColumn("culprit_times", LONG, "of these, pauses that the topic caused"),
        TableColumn("collateral_times", LONG, "of these, pauses that another topic caused"),
        TableColumn("culprit_ns", LONG, "paused time as culprit, summed over connections (ns)"),
        TableColumn("collateral_ns", LONG, "paused time as victim, summed over connections (ns)"),
        TableColumn("by_reason", COUNTS, "time each reason was active on a paused connection (ns)"),
        TableColumn("messages", LONG, "messages published"),
        TableColumn("bytes", LONG, "bytes published"),
        TableColumn("limit_msgs", RATE, "message limit of the topic at the window's end (per s)"),
        TableColumn("limit_bytes", RATE, "byte limit of the topic at the window's end (per s)"),
        TableColumn("limited_by_limiter", COUNTS, "limited_times split by the limiter that paused"),
    )
    return Table(
        "topic_throttle_stats",
        "Per topic and window: how often and how long it was paused, and by whose fault.",
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
        "Per limiter with a limit and window: how near it came to acting.",
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
        TableColumn("start_ms", LONG, "when the command came (ms since the epoch)"),
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
        "What clients are told with protocol=pip385: throttle commands and timed-out sends.",
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
        TableColumn("pause_model_ns", LONG, "pause that the buckets ask for after the charge (ns)"),
    )
    return Table(
        "publish_verdicts",
        "Every charge of a publish to a limiter and its answer.",
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
    )
    decisions = (
        *whose,
        TableColumn("uuid", TEXT, "message that the decision is about"),
        TableColumn("chunk_id", SHORT, "chunk that arrived, or last one of a context that went"),
        TableColumn("num_chunks", SHORT, "chunks of the message, by that chunk"),
        TableColumn("position", TEXT, "ledger:entry of that chunk"),
        TableColumn("outcome", TEXT, "what was decided; see the semantics of the job"),
        TableColumn("acks", TEXTS, "positions that the client acknowledges"),
        TableColumn("tracked", TEXTS, "positions that wait for redelivery"),
        TableColumn("orphaned", TEXTS, "positions neither acknowledged nor tracked"),
        TableColumn("permits", SHORT, "flow permits returned at once for the chunk"),
        TableColumn("counter", SHORT, "pending chunked messages by the client's counter"),
        TableColumn("contexts", SHORT, "messages that are really being assembled"),
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
        TableColumn("permits_lost", SHORT, "permits that B2, B7 or B8 have cost so far"),
    )
    missing = (
        *whose, *window, *message,
        TableColumn("next_chunk_id", SHORT, "chunk that is waited for"),
        TableColumn("first_position", TEXT, "ledger:entry of the first chunk"),
        TableColumn("last_position", TEXT, "ledger:entry of the newest chunk"),
        TableColumn("first_chunk_ms", LONG, "when the first chunk was delivered (ms epoch)"),
        TableColumn("last_chunk_ms", LONG, "when the newest chunk was delivered (ms epoch)"),
        TableColumn("age_ms", LONG, "time since the first chunk (ms)"),
        TableColumn("buffered_bytes", LONG, "bytes that it holds"),
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
        Table("chunk_messages", "Every chunked message that arrived whole.",
              COMMON_OUTPUT + messages, sort_by=("cluster", "topic", "complete_ms"), job=job),
        Table("chunk_events", "Every decision about a chunk but that it was buffered.",
              COMMON_OUTPUT + decisions, sort_by=(*place, "ts_wall_ms"), job=job),
        Table("chunk_state", "Per consumer and window: what it is assembling, at the end.",
              COMMON_OUTPUT + levels, sort_by=(*place, "window_start_ms"), job=job),
        Table("incomplete_messages",
              "Per window, every message that waits for a chunk; the newest window is what is "
              "missing now.",
              COMMON_OUTPUT + missing, sort_by=(*place, "window_start_ms"), job=job),
        Table("chunk_topic_stats", "Per topic and window: what was published in chunks.",
              COMMON_OUTPUT + topics, sort_by=("cluster", "topic", "window_start_ms"), job=job),
    )


def _chunk_payloads() -> tuple[Table, ...]:
    file = TableColumn("file", TEXT, "data file of chunk_payloads")
    return (
        Table(
            "chunk_payloads",
            "Payloads that wait for the rest of their message, beside the state of the query.",
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
                    "false-positive rate that goes with it; null with exact"),
        TableColumn("state_bytes", LONG, "memory of the filters (bytes)"),
    )
    job, place = "producer_ids", ("cluster", "broker", "user")
    return (
        Table("producer_id_decisions", "Every producer id that was new to its user.",
              COMMON_OUTPUT + decisions, sort_by=(*place, "ts_wall_ms"), job=job),
        Table("producer_id_stats", "Per user and window: new ids, quota and filters.",
              COMMON_OUTPUT + stats, sort_by=(*place, "window_start_ms"), job=job),
        Table("producer_id_owners",
              "Who a producer id belongs to: the latest row of an id holds.",
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
            TableColumn("detail", TEXT, "what broke it, usually the column"),
            TableColumn("job", TEXT, "job that cannot apply the record; null = no job can"),
            TableColumn("source_feed", TEXT, "feed that the record came from"),
            TableColumn("cluster", TEXT, "cluster name"),
            TableColumn("broker", TEXT, "broker identity"),
            TableColumn("seq", LONG, "position in the feed"),
            TableColumn("ts_wall_ms", LONG, "wall time of the record (ms since the epoch)"),
            *IDENTITY,
            TableColumn("raw", TEXT, "text as it came; null for late and repeated records"),
            INGEST,
        ),
        sort_by=("reason_code", "ts_wall_ms"),
    )


def _quality_results() -> Table:
    return Table(
        "quality_results",
        "What each audit found: one row per expectation.",
        (
            TableColumn("run_id", TEXT, "audit that the row belongs to"),
            TableColumn("checked_ms", LONG, "when the audit ran (ms since the epoch)"),
            TableColumn("table", TEXT, "table that was audited"),
            TableColumn("expectation", TEXT, "its name in Great Expectations, or its rule"),
            TableColumn("column", TEXT, "columns that it is about; null = the table"),
            TableColumn("success", FLAG, "whether it held"),
            TableColumn("observed", TEXT, "what was seen, as JSON"),
            TableColumn("unexpected_count", LONG, "rows that broke it; null if not about rows"),
        ),
        sort_by=("checked_ms", "table"),
    )


def _producer_id_quota_advice() -> Table:
    return Table(
        "producer_id_quota_advice",
        "What the quota of each user should be: one row per user and advice.",
        (
            TableColumn("advised_ms", LONG, "when the advice was worked out (ms since the epoch)"),
            TableColumn("cluster", TEXT, "cluster name"),
            TableColumn("user", TEXT, "name in the principal, what follows its first colon"),
            TableColumn("windows", LONG, "statistics windows of the user in the archive"),
            TableColumn("new_ids", LONG, "new producer ids in them, without a quota"),
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
        "State changes of alerts, in event time: the latest row of an alert and its labels holds.",
        (
            TableColumn("alert", TEXT, "name of the alert rule"),
            TableColumn("labels", SWITCHES, "what it is about, for example cluster and topic"),
            TableColumn("state", TEXT, "firing or resolved"),
            TableColumn("at_ms", LONG, "event time of the change (ms since the epoch)"),
            TableColumn("since_ms", LONG, "event time from which the condition held (ms)"),
            TableColumn("value", RATE, "largest value of the rule while the condition held"),
            TableColumn("severity", TEXT, "severity of the rule"),
            TableColumn("summary", TEXT, "what happened, in words"),
            TableColumn("runbook", TEXT, "page that says what to do"),
            TableColumn("checked_ms", LONG, "when the check ran (ms since the epoch)"),
        ),
        sort_by=("alert", "at_ms"),
    )


TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        _throttle_events(), _topic_throttle_stats(), _limiter_stats(), _producer_throttle(),
        _publish_verdicts(), *_chunk_tables(), *_chunk_payloads(),
        *_producer_id_tables(), _producer_id_quota_advice(),
        _events(), _quarantine(), _quality_results(), _alerts(),
    )
}


def written_tables(job: str, extra_outputs: tuple[str, ...] = ()) -> tuple[Table, ...]:
    """The tables that a job writes: those on by default and those named by `extra_outputs`."""
    return tuple(
        t for t in TABLES.values() if t.job == job and (t.default or t.name in extra_outputs)
    )
