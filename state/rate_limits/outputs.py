"""The tables that `rate_limits` writes: their columns and what these mean."""

from __future__ import annotations

from state.engine.table import (
    COUNTS,
    FLAG,
    LONG,
    RATE,
    SHORT,
    TEXT,
    TEXTS,
    WINDOW,
    Output,
    TableColumn,
)


def _throttle_events() -> Output:
    own = (
        TableColumn("cnx_id", TEXT, "client connection that the limiter acted on"),
        TableColumn("producer_id", LONG, "producer that the limiter acted on"),
        TableColumn("producer_name", TEXT, "name of that producer"),
        TableColumn("topic", TEXT, "topic of that producer"),
        TableColumn(
            "action",
            TEXT,
            "mark, unmark, pause (a reported pause begins with marks made before) or "
            "receipt (the wait for the receipt of a mark has ended)",
        ),
        TableColumn("throttle_type", TEXT, "type of throttle, by the broker's name for it"),
        TableColumn("reason", TEXT, "reason that PIP-385 gives for the type"),
        TableColumn("reason_number", SHORT, "number of the reason on the wire; null if unmapped"),
        TableColumn(
            "limiter",
            TEXT,
            "topic, resource_group, broker, connection, io_thread, or unknown: a reported "
            "pause without a known limit",
        ),
        TableColumn("transition", TEXT, "ConnectionStateChanged, TypeStateChanged or Dropped"),
        TableColumn("reads_paused", FLAG, "whether reads are paused after this row"),
        TableColumn(
            "culprit_topic",
            TEXT,
            "topic whose own limit is used up; null where the limit is shared",
        ),
        TableColumn(
            "trigger_topic",
            TEXT,
            "topic of the publish at which the limiter acted; on an unmark that of its mark",
        ),
        TableColumn(
            "limiter_name",
            TEXT,
            "owner of the limit: topic, group, broker, connection or thread number",
        ),
        TableColumn(
            "collateral_topics",
            TEXTS,
            "other topics with a producer on the paused connection, sorted",
        ),
        TableColumn("balance_msgs", LONG, "balance of the limiter's message bucket (tokens)"),
        TableColumn("balance_bytes", LONG, "balance of its byte bucket (tokens)"),
        TableColumn("pause_pip_ms", LONG, "pause that PIP-385 would announce (ms); 0 = unknown"),
        TableColumn("pause_model_ns", LONG, "pause that the buckets require at this row (ns)"),
        TableColumn("waiting", SHORT, "producers waiting for the limiter after this row"),
        TableColumn(
            "pause_observed_ns", LONG, "pause seen by the feed, on the row that resumes reads (ns)"
        ),
        TableColumn(
            "seen_until_ns",
            LONG,
            "rule gap: monotonic time up to which the mark was seen (ns); else null",
        ),
        TableColumn(
            "request_id",
            LONG,
            "throttle command of the mark, unique on the connection; null without one",
        ),
        TableColumn(
            "receipt_state",
            TEXT,
            "not_supported, received, timed_out or not_waited; null without the exchange "
            "and while the receipt is awaited",
        ),
    )
    return Output(
        "throttle_events",
        "Every mark and unmark of a connection by a publish limiter, dropped ones included.",
        own,
        sort_by=("cluster", "topic", "ts_wall_ms"),
        commit_interval_ms=0,
        shadowed=True,
    )


def _topic_throttle_stats() -> Output:
    own = (
        TableColumn("topic", TEXT, "topic, a partition being one of its own"),
        *WINDOW,
        TableColumn("limited_times", LONG, "pauses of connections that the topic was on"),
        TableColumn("culprit_times", LONG, "of these, pauses for the topic's own limit"),
        TableColumn(
            "shared_times",
            LONG,
            "of these, pauses for a limit that the topic shares: of its group, the broker, "
            "the connection or the IO thread",
        ),
        TableColumn("collateral_times", LONG, "of these, pauses for a limit of other topics"),
        TableColumn("culprit_ns", LONG, "paused time as culprit, summed over connections (ns)"),
        TableColumn(
            "shared_ns", LONG, "paused time for shared limits, summed over connections (ns)"
        ),
        TableColumn(
            "collateral_ns",
            LONG,
            "paused time as victim of other topics, summed over connections (ns)",
        ),
        TableColumn("by_reason", COUNTS, "time each reason was active on a paused connection (ns)"),
        TableColumn("messages", LONG, "messages published"),
        TableColumn("bytes", LONG, "bytes published"),
        TableColumn("limit_msgs", RATE, "message limit of the topic at the window's end (per s)"),
        TableColumn("limit_bytes", RATE, "byte limit of the topic at the window's end (per s)"),
        TableColumn("limited_by_limiter", COUNTS, "limited_times split by the limiter that paused"),
        TableColumn(
            "resource_group",
            TEXT,
            "resource group of the topic at the window's end; null without one",
        ),
    )
    return Output(
        "topic_throttle_stats",
        "Per topic and window: number and length of its pauses, by class of the limit.",
        own,
        sort_by=("cluster", "topic", "window_start_ms"),
        shadowed=True,
    )


def _limiter_stats() -> Output:
    own = (
        *WINDOW,
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
        TableColumn(
            "observed_pauses",
            LONG,
            "pauses that the feed reported and that began with this limiter",
        ),
        TableColumn(
            "predicted_pauses",
            LONG,
            "of these, pauses whose mark the model had made before the report",
        ),
        TableColumn("max_waiting", SHORT, "most producers waiting at once; null without a queue"),
        TableColumn(
            "utilisation",
            RATE,
            "largest of charged per s / limit and level / limit; 1 = at the limit",
        ),
    )
    return Output(
        "limiter_stats",
        "Per limiter with a limit and window: use of the limit, balances, levels.",
        own,
        sort_by=("cluster", "limiter", "limiter_name", "window_start_ms"),
    )


def _producer_throttle() -> Output:
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
        TableColumn(
            "throttled_ms_total",
            LONG,
            "sum of announced pauses per connection, topic and reason so far (ms)",
        ),
        TableColumn("sequence_id", LONG, "send that timed out; null on a command"),
        TableColumn(
            "exception",
            TEXT,
            "what the client sees: ProducerThrottledException or TimeoutException",
        ),
    )
    return Output(
        "producer_throttle",
        "Throttle commands to clients and timed-out sends (protocol=pip385).",
        own,
        sort_by=("cluster", "topic", "ts_wall_ms"),
        commit_interval_ms=0,
    )


def _publish_verdicts() -> Output:
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
    return Output(
        "publish_verdicts",
        "Every charge of a publish to a limiter and its result.",
        own,
        sort_by=("cluster", "topic", "ts_wall_ms"),
        default=False,
    )


OUTPUTS: tuple[Output, ...] = (
    _throttle_events(),
    _topic_throttle_stats(),
    _limiter_stats(),
    _producer_throttle(),
    _publish_verdicts(),
)
