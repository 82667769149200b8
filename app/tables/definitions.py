"""Every table that Weir writes: those that jobs declare, and all others.

Commands, writers and documentation take names and types from here only. Times are bigint
milliseconds or nanoseconds, never timestamps without a zone, which would raise the Delta protocol
above reader 1, writer 2.
"""

from __future__ import annotations

import pyarrow as pa

from app.tables.view import View
from app.tables.views import VIEWS
from state import events
from state.engine.table import (
    CAN_WAIT_MS,
    COMMON_OUTPUT,
    FLAG,
    LONG,
    RATE,
    SHORT,
    SWITCHES,
    TEXT,
    Table,
    TableColumn,
)
from state.jobs import DECLARED

__all__ = ["COMMON_OUTPUT", "TABLES", "VIEWS", "Table", "TableColumn", "View"]


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


IDENTITY: tuple[TableColumn, ...] = (
    TableColumn("source_partition", TEXT, "Kafka partition, Pulsar partition and ledger, or file"),
    TableColumn("source_offset", LONG, "Kafka offset, Pulsar entry and index, or line from 0"),
)
INGEST = TableColumn("ingest_ms", LONG, "when Weir read the record (ms since the epoch)")


def _events() -> Table:
    contract = tuple(TableColumn(c.name, c.type, c.meaning) for c in events.COLUMNS)
    digest = (
        TableColumn("payload_bytes", LONG, "length of the payload (bytes)"),
        TableColumn("payload_crc32", LONG, "CRC-32 of the payload"),
    )
    day = TableColumn(
        "event_date",
        pa.date32(),
        "UTC day of ts_wall_ms; of ingest_ms where that is null, and for the rarest"
        " of more than 366 days that arrive at once",
    )
    return Table(
        "events",
        "The archive: every record that at least one job could apply, repeated and late ones too.",
        (*contract, *digest, *IDENTITY, INGEST, day),
        partition_by=("event_date",),
        sort_by=("cluster", "topic", "ts_wall_ms"),
        commit_interval_ms=CAN_WAIT_MS,
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
            TableColumn(
                "raw",
                TEXT,
                "text of the record without its payload, 1 MiB at most (no"
                " JSON: 10,000 bytes, up to where a payload may be); null for late and"
                " repeated records",
            ),
            INGEST,
        ),
        sort_by=("reason_code", "ts_wall_ms"),
        commit_interval_ms=CAN_WAIT_MS,
    )


def _coverage() -> tuple[Table, ...]:
    whose = (
        TableColumn("cluster", TEXT, "cluster name"),
        TableColumn("broker", TEXT, "broker identity"),
    )
    return (
        Table(
            "coverage_counts",
            "Records that were read: a row per task of the archive, broker and minute; see the view"
            " coverage.",
            (
                *whose,
                TableColumn(
                    "minute_ms",
                    LONG,
                    "begin of the minute (ms since the epoch), by ts_wall_ms; 0 = it has"
                    " none that can be",
                ),
                TableColumn("received", LONG, "records, quarantined ones included"),
                TableColumn("quarantined", LONG, "records that broke a rule"),
                TableColumn(
                    "unsized",
                    LONG,
                    "requests of clients that no quota on bytes can be applied to: PRODUCE and"
                    " FETCH without a size",
                ),
            ),
            sort_by=("cluster", "broker", "minute_ms"),
            commit_interval_ms=CAN_WAIT_MS,
        ),
        Table(
            "coverage_gaps",
            "Gaps that feeds have announced: a row per gap and job, and how long it is blind.",
            (
                *whose,
                TableColumn("source_feed", TEXT, "feed that has lost records"),
                TableColumn("seq", LONG, "position of the gap in the feed"),
                TableColumn("ts_wall_ms", LONG, "end of the gap (ms since the epoch)"),
                TableColumn("ts_mono_ns", LONG, "end of the gap, monotonic (ns)"),
                TableColumn(
                    "gap_from_wall_ms",
                    LONG,
                    "first dropped event (ms since the epoch); null = since ever",
                ),
                TableColumn("gap_from_mono_ns", LONG, "first dropped event, monotonic (ns)"),
                TableColumn("dropped", LONG, "events that were dropped; null = not known"),
                TableColumn("job", TEXT, "job that is blind from then on"),
                TableColumn("blind_until_ms", LONG, "until this time (ms since the epoch)"),
            ),
            sort_by=("cluster", "broker", "ts_wall_ms"),
            commit_interval_ms=CAN_WAIT_MS,
        ),
        Table(
            "coverage_polls",
            "Polls of clusters: a row each, also for those that were not answered.",
            (
                TableColumn("cluster", TEXT, "cluster name"),
                TableColumn("source_feed", TEXT, "polled feed"),
                TableColumn("seq", LONG, "position of the record in the feed"),
                TableColumn("ts_wall_ms", LONG, "end of the poll (ms since the epoch)"),
                TableColumn("gap_from_wall_ms", LONG, "its begin (ms since the epoch)"),
                TableColumn(
                    "dropped", LONG, "what it left out: topics or partitions; null = all of them"
                ),
                TableColumn("problem", TEXT, "its first problem; null = none"),
            ),
            sort_by=("cluster", "ts_wall_ms"),
            commit_interval_ms=CAN_WAIT_MS,
        ),
    )


def _policies() -> Table:
    return Table(
        "policies",
        "Policies of the configuration that a run has taken or refused: a row per query and"
        " version.",
        (
            TableColumn("query", TEXT, "query that judges by them"),
            TableColumn(
                "version",
                LONG,
                "number of the version, 0 = what the query began with; null = refused",
            ),
            TableColumn("batch", LONG, "first batch that judges by them"),
            TableColumn(
                "ts_wall_ms",
                LONG,
                "event time from which they hold (ms since the epoch); null = from the"
                " beginning, or refused",
            ),
            TableColumn("read_ms", LONG, "when they were read (ms since the epoch)"),
            TableColumn("policy_hash", TEXT, "hash of the documents; null = refused"),
            TableColumn(
                "author",
                TEXT,
                "author of the last commit of the files; null = not committed, or no"
                " repository of git",
            ),
            TableColumn(
                "policy_json", TEXT, "all documents as the jobs have them, as JSON; null = refused"
            ),
            TableColumn("summary", TEXT, "documents that differ from the version before"),
            TableColumn("error", TEXT, "why an edit was refused; null = taken"),
        ),
        sort_by=("query", "read_ms"),
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
            TableColumn(
                "inputs",
                TEXT,
                "hash of the expectations and of the versions of all tables that they "
                "read: while it is the same, there is nothing to audit",
            ),
            TableColumn("expectation", TEXT, "its name in Great Expectations, or its rule"),
            TableColumn("column", TEXT, "columns of the expectation; null = the table"),
            TableColumn("success", FLAG, "whether it held"),
            TableColumn("observed", TEXT, "observed value, as JSON"),
            TableColumn("unexpected_count", LONG, "rows that violate it; null if not about rows"),
        ),
        sort_by=("checked_ms", "table"),
    )


def _producer_id_live() -> Table:
    return Table(
        "producer_id_live",
        "Producer ids that Kafka's leaders hold, polled by `kafka_producers`: a row for each "
        "change, and for all every 15 minutes. The newest row of a broker, topic and user is "
        "valid.",
        (
            TableColumn("polled_ms", LONG, "time of the poll (ms since the epoch)"),
            TableColumn("cluster", TEXT, "cluster name"),
            TableColumn("broker", TEXT, "id of the broker that leads the partitions"),
            TableColumn("topic", TEXT, "topic"),
            TableColumn(
                "user",
                TEXT,
                "owner of the ids, as in producer_id_stats; unknown = nothing names one",
            ),
            TableColumn("live_ids", LONG, "producer ids; 0 = none any more"),
            TableColumn("states", LONG, "their states, one per id and partition"),
            TableColumn(
                "heap_bytes", LONG, "estimated heap of the states: states * bytes_per_state (bytes)"
            ),
            TableColumn(
                "broker_heap_bytes",
                LONG,
                "the same of all topics and users of the broker at that poll (bytes)",
            ),
            TableColumn("number", LONG, "number of the row among those of its spool, from 1"),
        ),
        sort_by=("cluster", "broker", "topic", "user", "polled_ms"),
    )


def _open_transactions() -> Table:
    return Table(
        "open_transactions",
        "Transactions that two polls of `kafka_producers` in a row have met in a partition of Kafka: a"
        " row for each change of state, and for all every 15 minutes. The newest row of a partition,"
        " producer id and start_offset is valid.",
        (
            TableColumn("polled_ms", LONG, "time of the poll (ms since the epoch)"),
            TableColumn("cluster", TEXT, "cluster name"),
            TableColumn("topic", TEXT, "topic"),
            TableColumn("partition", SHORT, "partition"),
            TableColumn("user", TEXT, "owner of the producer id; unknown = nothing names one"),
            TableColumn(
                "transactional_id", TEXT, "transactional id; null = no coordinator names it"
            ),
            TableColumn("producer_id", LONG, "producer id"),
            TableColumn(
                "state",
                TEXT,
                "its coordinator's: Ongoing, PrepareCommit, PrepareAbort; uncoordinated = no"
                " coordinator names it; hanging = so for 15 minutes after its last batch, or open a"
                " minute beyond its timeout; ended",
            ),
            TableColumn("start_offset", LONG, "first offset of the transaction in the partition"),
            TableColumn("start_ms", LONG, "when it began (ms since the epoch); null if unknown"),
            TableColumn("timeout_ms", LONG, "time that the producer has for it; null if unknown"),
            TableColumn("last_ms", LONG, "timestamp of its producer's last batch there (ms epoch)"),
            TableColumn("number", LONG, "number of the row among those of its spool, from 1"),
        ),
        sort_by=("cluster", "topic", "partition", "polled_ms"),
    )


def _reconciliation() -> Table:
    return Table(
        "reconciliation",
        "What brokers counted and what Weir wrote: a row per broker, topic, measure and time"
        " between two readings, without those that are 0 on both sides.",
        (
            TableColumn("compared_ms", LONG, "when it was compared (ms since the epoch)"),
            TableColumn("cluster", TEXT, "cluster name"),
            TableColumn("broker", TEXT, "broker whose counters were read"),
            TableColumn(
                "topic",
                TEXT,
                "topic, of Pulsar a partition being one of its own; null = the whole broker",
            ),
            TableColumn("partition", SHORT, "Kafka: partition of the topic"),
            TableColumn("group", TEXT, "Kafka: consumer group; null = of the log"),
            TableColumn(
                "user", TEXT, "Kafka: user of a client quota; empty = all users; null = of no quota"
            ),
            TableColumn("client", TEXT, "Kafka: client id of the quota; likewise"),
            TableColumn("measure", TEXT, "what is compared; see the page reconcile"),
            TableColumn("compared_job", TEXT, "job whose rows have Weir's number"),
            TableColumn("window_start_ms", LONG, "first reading (ms since the epoch)"),
            TableColumn("window_ms", LONG, "time until the second reading (ms)"),
            TableColumn(
                "broker_value",
                LONG,
                "the broker's number: an increase, or the value at the end; null = none",
            ),
            TableColumn("weir_value", LONG, "Weir's number"),
            TableColumn(
                "difference", LONG, "broker_value - weir_value; null without the broker's number"
            ),
            TableColumn("bound", LONG, "largest difference that timing alone can cause"),
            TableColumn("reason", TEXT, "why it is not a comparison; null = it is one"),
        ),
        sort_by=(
            *("cluster", "broker", "measure", "topic", "partition", "group", "user", "client"),
            "window_start_ms",
        ),
    )


def _forecasts() -> Table:
    return Table(
        "forecasts",
        "When limits are reached: a row per limit and hour in which a forecast was made. Shares"
        " are of `limit`.",
        (
            TableColumn("made_ms", LONG, "when it was made (ms since the epoch)"),
            TableColumn(
                "known_ms", LONG, "end of the newest hour that it follows from (ms since the epoch)"
            ),
            TableColumn("kind", TEXT, "kind of the limit, as in quota_usage"),
            TableColumn("cluster", TEXT, "cluster name"),
            TableColumn("broker", TEXT, "broker; null where the limit is that of a topic"),
            TableColumn("entity", TEXT, "topic, resource group, broker or user"),
            TableColumn("limit", RATE, "the limit then, in its unit: per s, bytes or s"),
            TableColumn("used", RATE, "highest use of the day before known_ms, in that unit"),
            TableColumn(
                "p50", RATE, "median use of its windows or checks, as a share of the limit of each"
            ),
            TableColumn("p95", RATE, "their 95th percentile"),
            TableColumn("highest", RATE, "the highest of them"),
            TableColumn(
                "breached", FLAG, "whether the newest of them was at the limit, or breached it"
            ),
            TableColumn(
                "for_ms",
                LONG,
                "end of the day that is predicted (ms since the epoch); null with a reason",
            ),
            TableColumn("predicted", RATE, "highest use of that day, as a share"),
            TableColumn(
                "breach_ms",
                LONG,
                "start of the hour in which use reaches the limit (ms since the epoch);"
                " null = not before for_ms",
            ),
            TableColumn(
                "mean_error",
                RATE,
                "mean difference of past forecasts, as far ahead, from what came, as a share",
            ),
            TableColumn("tests", LONG, "number of these forecasts"),
            TableColumn("reason", TEXT, "why there is no forecast; null = there is one"),
        ),
        sort_by=("known_ms", "kind", "cluster", "entity"),
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
            TableColumn("hits", LONG, "reads that found their entry"),
            TableColumn("misses", LONG, "reads that went to storage"),
            TableColumn("hit_ratio", RATE, "hits / reads, 0 to 1; null without reads"),
            TableColumn("hit_bytes", LONG, "bytes read from the cache"),
            TableColumn("storage_bytes", LONG, "bytes read from storage"),
            TableColumn("wanted_bytes", LONG, "most bytes held at once with reads expected"),
            TableColumn("max_used_bytes", LONG, "most bytes that it held at once"),
            TableColumn("evicted_wanted", LONG, "entries evicted while reads were expected"),
            TableColumn("evicted_wanted_bytes", LONG, "bytes of them"),
            TableColumn("passes", LONG, "passes that had to free memory"),
            TableColumn("work", LONG, "entries that passes looked at"),
            TableColumn("switches", SWITCHES, "version parameters of the job in force"),
            TableColumn(
                "params_hash", TEXT, "hash of the job's parameters and configured policies"
            ),
        ),
        sort_by=("compared_ms", "cluster", "broker", "policy", "max_bytes"),
    )


def _alerts() -> Table:
    return Table(
        "alerts",
        "State changes of alerts, in event time: the latest row of an alert and labels is valid.",
        (
            TableColumn("alert", TEXT, "name of the alert rule"),
            TableColumn("labels", SWITCHES, "labels of the alert, for example cluster and topic"),
            TableColumn(
                "state", TEXT, "pending, firing, resolved, or inactive: it ended before it fired"
            ),
            TableColumn("at_ms", LONG, "event time of the change (ms since the epoch)"),
            TableColumn(
                "since_ms", LONG, "event time from which the condition held (ms since the epoch)"
            ),
            TableColumn("value", RATE, "largest value of the rule while the condition held"),
            TableColumn("severity", TEXT, "severity from this change on"),
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
        *(table for job in DECLARED.values() for table in job.tables),
        *(table for job in DECLARED.values() for table in job.shadow_tables),
        *_chunk_payloads(),
        _producer_id_live(),
        _open_transactions(),
        _cache_bakeoff(),
        _reconciliation(),
        _forecasts(),
        _events(),
        _quarantine(),
        *_coverage(),
        _policies(),
        _quality_results(),
        _alerts(),
    )
}
