"""The tables that `rate_limits` writes: their columns, what these mean, and the kernel's rows."""

from __future__ import annotations

from state.engine.table import (
    COUNTS,
    GIVEN,
    ROW,
    TEXTS,
    WINDOW,
    Output,
    TableColumn,
    begins,
    flag,
    long,
    rate,
    short,
    text,
)

ACTIONS = ("mark", "unmark", "receipt", "pause")
EXCEPTIONS = (None, "ProducerThrottledException", "TimeoutException")
LIMITER_NAMES = ("connection", "io_thread", "topic", "resource_group", "broker", "unknown")
REASONS = (
    "ConnectionPendingMessagesBreach",
    "MessageBufferSizeBreach",
    "TopicProduceQuotaExceeded",
    "ResourceGroupProduceQuotaExceeded",
    "BrokerProduceQuotaExceeded",
    "UNMAPPED",
    "UNMAPPED",
    "UNMAPPED",
)
RECEIPT_STATES = (None, "not_supported", "received", "timed_out", "not_waited", None)
RULES = (
    "bucket_empty",
    "released",
    "limit_removed",
    "in_flight_limit",
    "in_flight_half",
    "buffer_limit",
    "buffer_half",
    "connection_closed",
    "receipt_in_time",
    "receipt_timeout",
    "informed_only",
    "send_timeout",
    "client_unsupported",
    "gap",
    "mark_observed",
    "observed_pause",
    "observed_resume",
    "not_observed",
)
TRANSITIONS = ("ConnectionStateChanged", "TypeStateChanged", "Dropped")
TYPE_NAMES = (
    "ConnectionMaxPendingPublishRequestsExceeded",
    "IOThreadMaxPendingPublishBytesExceeded",
    "TopicPublishRate",
    "ResourceGroupPublishRate",
    "BrokerPublishRate",
    "Unknown",
    "ConnectionOutboundBufferFull",
    "ConnectionPauseReceivingCooldownRateLimit",
)

CNX, PRODUCER, TOPIC, TRIGGER, LIMITER = "cnx", "producer", "topic", "trigger", "limiter"
"""What the fields of these names in the kernel's rows are positions of."""
WINDOW_RULE = "window"
_OF_TYPES = (*LIMITER_NAMES, *["unknown"] * (len(TYPE_NAMES) - len(LIMITER_NAMES)))
_BEGIN = begins(ROW, cluster=(GIVEN,), broker=(GIVEN,), source_feed=(ROW, "feed"))

_PRODUCER_NAME = text("producer_name", "name of that producer")
EVENTS = Output(
    "throttle_events",
    "Every mark and unmark of a connection by a publish limiter, dropped ones included.",
    (
        text("cnx_id", "client connection that the limiter acted on", "name", of=CNX, needed=True),
        long("producer_id", "producer that the limiter acted on", of=PRODUCER, null=-1),
        _PRODUCER_NAME,
        text("topic", "topic of that producer", "name", of=TOPIC),
        text(
            "action",
            "mark, unmark, pause (a reported pause begins with marks made before) or receipt (the"
            " wait for the receipt of a mark has ended)",
            words=ACTIONS,
            needed=True,
        ),
        text(
            "throttle_type",
            "type of throttle, by the broker's name for it",
            "type",
            words=TYPE_NAMES,
            needed=True,
        ),
        text(
            "reason", "reason that PIP-385 gives for the type", "type", words=REASONS, needed=True
        ),
        short(
            "reason_number",
            "number of the reason on the wire; null if unmapped",
            of=GIVEN,
            least=0,
            most=4,
        ),
        text(
            "limiter",
            "topic, resource_group, broker, connection, io_thread, or unknown: a reported pause"
            " without a known limit",
            "type",
            words=_OF_TYPES,
            needed=True,
        ),
        text(
            "transition",
            "ConnectionStateChanged, TypeStateChanged or Dropped",
            words=TRANSITIONS,
            needed=True,
        ),
        flag("reads_paused", "whether reads are paused after this row", needed=True),
        text(
            "culprit_topic",
            "topic whose own limit is used up; null where the limit is shared",
            of=GIVEN,
        ),
        text(
            "trigger_topic",
            "topic of the publish at which the limiter acted; on an unmark that of its mark",
            "name",
            of=TRIGGER,
        ),
        text(
            "limiter_name",
            "owner of the limit: topic, group, broker, connection or thread number",
            of=GIVEN,
        ),
        TableColumn(
            "collateral_topics",
            TEXTS,
            "other topics with a producer on the paused connection, sorted",
        ),
        long("balance_msgs", "balance of the limiter's message bucket (tokens)", of=GIVEN),
        long("balance_bytes", "balance of its byte bucket (tokens)", of=GIVEN),
        long(
            "pause_pip_ms",
            "pause that PIP-385 would announce (ms); 0 = unknown",
            of=GIVEN,
            least=0,
            most=1000,
        ),
        long(
            "pause_model_ns", "pause that the buckets require at this row (ns)", of=GIVEN, least=0
        ),
        short("waiting", "producers waiting for the limiter after this row", of=GIVEN, least=0),
        long(
            "pause_observed_ns",
            "pause seen by the feed, on the row that resumes reads (ns)",
            "observed_ns",
            least=0,
        ),
        long(
            "seen_until_ns",
            "rule gap: monotonic time up to which the mark was seen (ns); else null",
            "seen_ns",
        ),
        long(
            "request_id",
            "throttle command of the mark, unique on the connection; null without one",
            "request",
        ),
        text(
            "receipt_state",
            "not_supported, received, timed_out or not_waited; null without the exchange and while"
            " the receipt is awaited",
            "receipt",
            words=RECEIPT_STATES,
        ),
    ),
    sort_by=("cluster", "topic", "ts_wall_ms"),
    commit_interval_ms=0,
    shadowed=True,
    begins=_BEGIN,
    rules=RULES,
)
STATS = Output(
    "topic_throttle_stats",
    "Per topic and window: number and length of its pauses, by class of the limit.",
    (
        text("topic", "topic, a partition being one of its own", "name", needed=True),
        *WINDOW,
        long(
            "limited_times",
            "pauses of connections that the topic was on",
            of=GIVEN,
            least=0,
            needed=True,
        ),
        long("culprit_times", "of these, pauses for the topic's own limit", least=0, needed=True),
        long(
            "shared_times",
            "of these, pauses for a limit that the topic shares: of its group, the broker, the"
            " connection or the IO thread",
            least=0,
        ),
        long(
            "collateral_times", "of these, pauses for a limit of other topics", least=0, needed=True
        ),
        long(
            "culprit_ns",
            "paused time as culprit, summed over connections (ns)",
            least=0,
            needed=True,
        ),
        long("shared_ns", "paused time for shared limits, summed over connections (ns)", least=0),
        long(
            "collateral_ns",
            "paused time as victim of other topics, summed over connections (ns)",
            least=0,
            needed=True,
        ),
        TableColumn("by_reason", COUNTS, "time each reason was active on a paused connection (ns)"),
        long("messages", "messages published", least=0, needed=True),
        long("bytes", "bytes published", least=0, needed=True),
        rate(
            "limit_msgs",
            "message limit of the topic at the window's end (per s)",
            of=GIVEN,
            least=0,
        ),
        rate(
            "limit_bytes", "byte limit of the topic at the window's end (per s)", of=GIVEN, least=0
        ),
        TableColumn("limited_by_limiter", COUNTS, "limited_times split by the limiter that paused"),
        text(
            "resource_group",
            "resource group of the topic at the window's end; null without one",
            of=GIVEN,
        ),
    ),
    sort_by=("cluster", "topic", "window_start_ms"),
    shadowed=True,
    rules=(WINDOW_RULE,),
)
LIMITERS = Output(
    "limiter_stats",
    "Per limiter with a limit and window: use of the limit, balances, levels.",
    (
        *WINDOW,
        text(
            "limiter",
            "topic, resource_group, broker, connection or io_thread",
            of=GIVEN,
            words=LIMITER_NAMES,
            needed=True,
        ),
        text(
            "limiter_name",
            "topic, group, broker, connection or thread number",
            of=GIVEN,
            needed=True,
        ),
        long("messages", "messages charged; null without a rate", of=GIVEN, least=0),
        long("bytes", "bytes charged; null without a rate", of=GIVEN, least=0),
        rate("limit_msgs", "message limit at the window's end (per s)", of=GIVEN, least=0),
        rate("limit_bytes", "byte limit at the window's end (per s)", of=GIVEN, least=0),
        long("max_level", "most requests in flight, or bytes buffered", of=GIVEN),
        long("limit_level", "limit of that level at the window's end", of=GIVEN, least=0),
        long("min_balance_msgs", "lowest message balance after a charge (tokens)", of=GIVEN),
        long("min_balance_bytes", "lowest byte balance after a charge (tokens)", of=GIVEN),
        long("throttles", "marks", of=GIVEN, least=0, needed=True),
        long(
            "observed_pauses",
            "pauses that the feed reported and that began with this limiter",
            of=GIVEN,
            least=0,
        ),
        long(
            "predicted_pauses",
            "of these, pauses whose mark the model had made before the report",
            of=GIVEN,
            least=0,
        ),
        short(
            "max_waiting", "most producers waiting at once; null without a queue", of=GIVEN, least=0
        ),
        rate(
            "utilisation",
            "largest of charged per s / limit and level / limit; 1 = at the limit",
            of=GIVEN,
            least=0,
            needed=True,
        ),
    ),
    sort_by=("cluster", "limiter", "limiter_name", "window_start_ms"),
    rules=(WINDOW_RULE,),
)
COMMANDS = Output(
    "producer_throttle",
    "Throttle commands to clients and timed-out sends (protocol=pip385).",
    (
        text("cnx_id", "client connection of the producer", "cnx"),
        long("producer_id", "producer that the command went to", needed=True),
        _PRODUCER_NAME,
        text("topic", "topic of that producer, a partition being one of its own", needed=True),
        short("partition", "number of the partition; null = not partitioned", of=GIVEN),
        text("reason", "reason that the command carries", "type", words=REASONS),
        long("start_ms", "arrival of the command (ms since the epoch)", of=GIVEN),
        long("pause_ms", "pause that it announces (ms); 0 = unknown", of=GIVEN, least=0),
        long("end_ms", "end of the announced pause (ms since the epoch)", of=GIVEN),
        long("request_id", "id of the command, unique on the connection", "request"),
        long(
            "throttled_ms_total",
            "sum of announced pauses per connection, topic and reason so far (ms)",
            "total_ms",
            least=0,
        ),
        long("sequence_id", "send that timed out; null on a command"),
        text(
            "exception",
            "what the client sees: ProducerThrottledException or TimeoutException",
            words=EXCEPTIONS,
        ),
    ),
    sort_by=("cluster", "topic", "ts_wall_ms"),
    commit_interval_ms=0,
    begins=_BEGIN,
    rules=RULES,
)
VERDICTS = Output(
    "publish_verdicts",
    "Every charge of a publish to a limiter and its result.",
    (
        text("limiter", "topic, resource_group or broker", "kind", of=LIMITER, words=LIMITER_NAMES),
        text("topic", "topic of the publish", "name", of=TOPIC),
        long("messages", "messages charged"),
        long("bytes", "bytes charged"),
        flag("messages_ok", "whether the message bucket let the charge pass"),
        flag("bytes_ok", "whether the byte bucket let the charge pass"),
        long("balance_msgs", "message bucket after the charge (tokens)", of=GIVEN),
        long("balance_bytes", "byte bucket after the charge (tokens)", of=GIVEN),
        long("pause_model_ns", "pause that the buckets require after the charge (ns)", "pause_ns"),
    ),
    sort_by=("cluster", "topic", "ts_wall_ms"),
    default=False,
    begins=_BEGIN,
)
OUTPUTS = (
    EVENTS,
    STATS,
    LIMITERS,
    COMMANDS,
    VERDICTS,
)
_BALANCES = ("has", "balance_msgs", "balance_bytes")
EVENT = EVENTS.row(*_BALANCES, "owner", "snapshot", "pause_ns", "waiting")
COMMAND = COMMANDS.row("timed", "start_ms", "pause_ms", "end_ms")
VERDICT = VERDICTS.row(*_BALANCES)
