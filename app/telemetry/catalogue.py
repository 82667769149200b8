"""Every metric of the exporter: name, kind, labels and one sentence. Names come from here only.

Names with `pulsar_` and `kafka_` are upstream's, of the kind that upstream exposes them as: some of
its counters are of type gauge. Names of OpenTelemetry have dots there and underscores here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "counter as gauge"]


@dataclass(frozen=True)
class Definition:
    """One metric; labels that have no value in a sample are left out of it."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str
    source: str
    """Tables or files that it comes from."""
    bounded: bool = False
    """True: only entities near their quota or over it have series; the rest is `other`."""


_BROKER = ("cluster", "broker")
_TOPIC = (*_BROKER, "namespace", "topic")
_FORECAST = ("kind", *_BROKER, "entity", "method")
_BACKLOG = ("cluster", "namespace", "topic")
_USER = (*_BROKER, "user")
_CACHE = (*_BROKER, "policy", "max_bytes")
_OPERATION = "pulsar_connection_rate_limit_operation_name"

_RATE_LIMITS = (
    Definition(
        "pulsar_publish_rate_limit_times",
        "counter as gauge",
        _TOPIC,
        "Pauses of connections that the topic was on, as brokers count them: also for a"
        " topic that only shares the connection.",
        "topic_throttle_stats",
        True,
    ),
    Definition(
        "pulsar_broker_topic_publish_rate_limit_count_total",
        "counter",
        (*_TOPIC, "limiter"),
        "The same by the limiter that paused, the attribute that PIP-385 adds"
        " (pulsar.broker.topic.publish.rate.limit.count): connection, io_thread, topic,"
        " resource_group, broker, or unknown for a pause that only the feed reports.",
        "topic_throttle_stats",
        True,
    ),
    Definition(
        "pulsar_client_producer_throttled_times_total",
        "counter",
        (*_TOPIC, "reason"),
        "Pauses announced to clients with protocol=pip385, summed (ms, despite its name;"
        " pulsar.client.producer.throttled_times).",
        "producer_throttle",
        True,
    ),
    Definition(
        "weir_send_timeouts_total",
        "counter",
        (*_TOPIC, "exception"),
        "Sends that timed out in the client (protocol=pip385), by exception:"
        " ProducerThrottledException while the producer was throttled, else"
        " TimeoutException.",
        "producer_throttle",
        True,
    ),
    Definition(
        "pulsar_broker_throttled_connections",
        "gauge",
        _BROKER,
        "Connections whose reads are paused.",
        "throttle_events",
    ),
    Definition(
        "pulsar_broker_connection_rate_limit_count_total",
        "counter",
        (*_BROKER, _OPERATION),
        "Connections paused, resumed, throttled and unthrottled; the last two count only"
        " too many requests in flight (pulsar.broker.connection.rate_limit.count).",
        "throttle_events",
    ),
    Definition(
        "weir_topic_pauses_total",
        "counter",
        (*_TOPIC, "role"),
        "Pauses of connections that the topic was on, by role: for its own limit (culprit),"
        " a limit that it shares (shared) or that of other topics (collateral).",
        "topic_throttle_stats",
        True,
    ),
    Definition(
        "weir_topic_paused_seconds_total",
        "counter",
        (*_TOPIC, "role"),
        "Time that the topic was paused, summed over connections, by role: culprit,"
        " shared or collateral.",
        "topic_throttle_stats",
        True,
    ),
    Definition(
        "weir_published_messages_total",
        "counter",
        _BROKER,
        "Messages published.",
        "topic_throttle_stats",
    ),
    Definition(
        "weir_published_bytes_total", "counter", _BROKER, "Bytes published.", "topic_throttle_stats"
    ),
)

_QUOTAS = (
    Definition(
        "weir_quota_breaches_total",
        "counter",
        ("kind", *_BROKER, "entity"),
        "Windows, or checks, in which the quota was breached.",
        "quota_usage",
        True,
    ),
    Definition(
        "weir_quota_limit",
        "gauge",
        ("kind", *_BROKER, "entity"),
        "The quota in the newest window, in its own unit: rates per second, bytes, seconds,"
        " requests.",
        "quota_usage",
        True,
    ),
    Definition(
        "weir_quota_used",
        "gauge",
        ("kind", *_BROKER, "entity"),
        "Use of the quota in the newest window, in the same unit.",
        "quota_usage",
        True,
    ),
    Definition(
        "weir_quota_used_ratio",
        "gauge",
        ("kind", *_BROKER, "entity"),
        "Used / limit in the newest window; absent for a limit of 0.",
        "quota_usage",
        True,
    ),
    Definition(
        "weir_quota_breached",
        "gauge",
        ("kind", *_BROKER, "entity"),
        "1 if the quota was breached in the newest window or check, else 0.",
        "quota_usage",
        True,
    ),
    Definition(
        "weir_quota_used_ratio_max",
        "gauge",
        ("kind", *_BROKER),
        "The largest used / limit of the newest window, of all entities.",
        "quota_usage",
    ),
)

_BACKLOGS = (
    Definition(
        "pulsar_storage_backlog_size",
        "gauge",
        _BACKLOG,
        "Size of the backlog at the newest check (bytes).",
        "backlog_checks",
        True,
    ),
    Definition(
        "pulsar_storage_backlog_quota_limit",
        "gauge",
        _BACKLOG,
        "Size quota (bytes); -1 without one.",
        "backlog_checks",
        True,
    ),
    Definition(
        "pulsar_storage_backlog_quota_limit_time",
        "gauge",
        _BACKLOG,
        "Time quota (s); -1 without one.",
        "backlog_checks",
        True,
    ),
    Definition(
        "pulsar_storage_backlog_age_seconds",
        "gauge",
        _BACKLOG,
        "Age of the oldest unacknowledged message; -1 if none or unknown. It has grown since"
        " its check, as a broker's does (age_reading: live). Topic level only.",
        "backlog_checks",
        True,
    ),
    Definition(
        "pulsar_storage_backlog_quota_exceeded_evictions_total",
        "counter as gauge",
        (*_BACKLOG, "quota_type"),
        "Evictions by the quota, as predicted; without the label topic: of all topics of"
        " the namespace.",
        "backlog_evictions",
        True,
    ),
    Definition(
        "pulsar_broker_storage_backlog_quota_exceeded_evictions_total",
        "counter as gauge",
        ("cluster", "quota_type"),
        "The same of the whole cluster.",
        "backlog_evictions",
    ),
    Definition(
        "pulsar_storage_backlog_quota_check_duration_seconds_bucket",
        "counter as gauge",
        (*_BROKER, "le"),
        "The broker's own histogram of the durations of its checks, as reconcile has read it"
        " last: with brokers of the section reconcile only.",
        "reconcile",
    ),
    Definition(
        "pulsar_storage_backlog_quota_check_duration_seconds_count",
        "counter as gauge",
        _BROKER,
        "Of these, the number of observations.",
        "reconcile",
    ),
    Definition(
        "pulsar_storage_backlog_quota_check_duration_seconds_sum",
        "counter as gauge",
        _BROKER,
        "Of these, the sum (s).",
        "reconcile",
    ),
    Definition(
        "weir_backlog_dropped_entries_total",
        "counter",
        (*_BACKLOG, "quota_type"),
        "Entries that evictions would have skipped before they were read; of namespaces if"
        " topic level metrics are off.",
        "backlog_evictions",
        True,
    ),
    Definition(
        "weir_backlog_expired_unread_total",
        "counter",
        _BACKLOG,
        "Messages that expired before a subscription read them; of namespaces if topic level"
        " metrics are off.",
        "backlog_subscriptions",
        True,
    ),
    Definition(
        "weir_backlog_time_to_quota_seconds",
        "gauge",
        _BACKLOG,
        "Predicted time until the first subscription of the topic brings it to a quota; 0 if"
        " it is exceeded, absent without a prediction. Topic level only.",
        "backlog_subscriptions",
        True,
    ),
    Definition(
        "weir_backlog_refusals_total",
        "counter",
        ("cluster", "quota_type"),
        "Producers that connected while a quota was exceeded and would be refused.",
        "producer_refusals",
    ),
)

_PARTITION = ("cluster", "group", "topic", "partition")

_GROUPS = (
    Definition(
        "weir_group_lag",
        "gauge",
        _PARTITION,
        "Kafka: offsets between a group and the end of the log at the newest check, 0 if it"
        " is ahead. The rest of a group is topic=other.",
        "group_lag",
        True,
    ),
    Definition(
        "weir_group_lag_seconds",
        "gauge",
        _PARTITION,
        "Kafka: age of the oldest unread record; absent without one.",
        "group_lag",
        True,
    ),
    Definition(
        "weir_group_time_to_loss_seconds",
        "gauge",
        _PARTITION,
        "Kafka: time until unread records may be deleted; 0 = now, absent if not expected.",
        "group_lag",
        True,
    ),
    Definition(
        "weir_group_retention_used_ratio",
        "gauge",
        _PARTITION,
        "Kafka: age of the oldest unread record / retention, by a timestamp that was read;"
        " absent without one.",
        "group_lag",
        True,
    ),
    Definition(
        "weir_group_lost_offsets_total",
        "counter",
        ("cluster", "group", "topic"),
        "Kafka: offsets that were deleted before the group read them, each counted once.",
        "lost_messages",
    ),
    Definition(
        "weir_group_partitions",
        "gauge",
        ("cluster", "state"),
        "Kafka: partitions of groups by state: committed, ahead, or no_offset where there"
        " are records.",
        "group_lag",
    ),
    Definition(
        "weir_group_state",
        "gauge",
        ("cluster", "group", "state"),
        "Kafka: 1 for the state of a group that has a series of weir_group_lag: stable,"
        " rebalancing, empty = it has no consumer, or dead.",
        "group_states",
    ),
)

_PRODUCER_IDS = (
    Definition(
        "kafka_server_producerids_rate",
        "gauge",
        _USER,
        "Rate of new producer ids (ids per s; kafka.server:type=ProducerIds rate).",
        "producer_id_stats",
        True,
    ),
    Definition(
        "kafka_server_producerids_tokens",
        "gauge",
        _USER,
        "Remaining tokens; below 0 = throttling (kafka.server:type=ProducerIds tokens).",
        "producer_id_stats",
        True,
    ),
    Definition(
        "kafka_server_producerids_throttle_time",
        "gauge",
        _USER,
        "Mean throttle time (ms; kafka.server:type=ProducerIds throttle-time).",
        "producer_id_stats",
        True,
    ),
    Definition(
        "weir_producer_ids_rejected_total",
        "counter",
        _USER,
        "Batches rejected for the quota of producer ids.",
        "producer_id_stats",
        True,
    ),
    Definition(
        "weir_producer_ids_new_total",
        "counter",
        _BROKER,
        "Producer ids that were new to their user and counted.",
        "producer_id_stats",
    ),
    Definition(
        "weir_producer_id_heap_bytes",
        "gauge",
        _BROKER,
        "Estimated heap of the producer states that the broker holds as a leader.",
        "producer_id_live",
    ),
)

_CHUNKS = (
    Definition(
        "weir_chunk_messages_total",
        "counter",
        ("cluster", "integrity"),
        "Complete chunked messages.",
        "chunk_messages",
    ),
    Definition(
        "weir_chunk_events_total",
        "counter",
        ("cluster", "outcome"),
        "Decisions about chunks except BUFFERED.",
        "chunk_events",
    ),
    Definition(
        "weir_chunked_message_rate",
        "gauge",
        ("cluster",),
        "Chunked messages that producers began per second, in the newest windows.",
        "chunk_topic_stats",
    ),
    Definition(
        "weir_chunk_stalled_messages",
        "gauge",
        ("cluster",),
        "Large messages that stalled subscriptions have not got, in the newest windows.",
        "incomplete_messages",
    ),
    Definition(
        "weir_chunk_contexts",
        "gauge",
        ("cluster",),
        "Incomplete messages of consumers, in the newest windows.",
        "chunk_state",
    ),
    Definition(
        "weir_chunk_leaked",
        "gauge",
        ("cluster",),
        "Excess of the clients' counters over the incomplete messages.",
        "chunk_state",
    ),
    Definition(
        "weir_chunk_buffered_bytes",
        "gauge",
        ("cluster",),
        "Bytes that consumers buffer for incomplete messages.",
        "chunk_state",
    ),
    Definition(
        "weir_chunk_oldest_age_seconds",
        "gauge",
        ("cluster",),
        "Age of the oldest incomplete message.",
        "chunk_state",
    ),
)

_CACHES = (
    Definition(
        "pulsar_ml_cache_evictions",
        "counter as gauge",
        _CACHE,
        "Passes that had to free memory.",
        "cache_stats",
    ),
    Definition("pulsar_ml_cache_entries", "gauge", _CACHE, "Entries in the cache.", "cache_stats"),
    Definition(
        "pulsar_ml_cache_inserted_entries_total",
        "counter",
        _CACHE,
        "Entries inserted.",
        "cache_stats",
    ),
    Definition(
        "pulsar_ml_cache_evicted_entries_total",
        "counter",
        _CACHE,
        "Entries that were evicted, for their age or the cache's size.",
        "cache_stats",
    ),
    Definition("pulsar_ml_cache_used_size", "gauge", _CACHE, "Bytes in the cache.", "cache_stats"),
    Definition(
        "pulsar_ml_cache_hits_rate",
        "gauge",
        _CACHE,
        "Reads per second that found their entry, in the newest window.",
        "cache_stats",
    ),
    Definition(
        "pulsar_ml_cache_misses_rate",
        "gauge",
        _CACHE,
        "Reads per second that went to storage, in the newest window.",
        "cache_stats",
    ),
    Definition(
        "pulsar_ml_cache_hits_throughput",
        "gauge",
        _CACHE,
        "Bytes per second from the cache, in the newest window.",
        "cache_stats",
    ),
    Definition(
        "pulsar_ml_cache_misses_throughput",
        "gauge",
        _CACHE,
        "Bytes per second from storage, in the newest window.",
        "cache_stats",
    ),
    Definition(
        "weir_cache_reads_total",
        "counter",
        (*_CACHE, "result"),
        "Reads of entries, by result: hit or miss.",
        "cache_stats",
    ),
    Definition(
        "weir_cache_evicted_wanted_total",
        "counter",
        _CACHE,
        "Entries evicted while reads of them were expected.",
        "cache_stats",
    ),
)

_OWNERS = (
    Definition(
        "weir_owner_info",
        "gauge",
        ("cluster", "topic", "user", "team", "contact", "cost_centre"),
        "1 for every topic and user with series of its own that has an owner.",
        "the configuration",
    ),
)

_STREAM = (
    Definition(
        "weir_query_batches_total",
        "counter",
        ("query",),
        "Micro-batches completed since the run began.",
        "progress",
    ),
    Definition(
        "weir_query_records_total",
        "counter",
        ("query",),
        "Records read since the run began.",
        "progress",
    ),
    Definition(
        "weir_query_phase_seconds_total",
        "counter",
        ("query", "phase"),
        "Time that the phases of the micro-batches took, by Spark's names for them"
        " (triggerExecution is the whole).",
        "progress",
    ),
    Definition(
        "weir_query_batch", "gauge", ("query",), "Number of the newest micro-batch.", "progress"
    ),
    Definition(
        "weir_query_batch_duration_seconds",
        "gauge",
        ("query",),
        "Duration of the newest micro-batch.",
        "progress",
    ),
    Definition(
        "weir_query_newest_event_timestamp_seconds",
        "gauge",
        ("query",),
        "Time of the newest event read (s since the epoch); while a source lags, of its "
        "slowest partition.",
        "progress",
    ),
    Definition(
        "weir_query_state_bytes", "gauge", ("query",), "Bytes of the query's state.", "progress"
    ),
    Definition(
        "weir_query_progress_timestamp_seconds",
        "gauge",
        ("query",),
        "Time at which a micro-batch last ended or the query last waited for records"
        " (s since the epoch).",
        "progress",
    ),
    Definition(
        "weir_quarantine_rows_total",
        "counter",
        ("reason_code", "job"),
        "Rows of quarantine: rules that records broke, by code and the job that cannot apply"
        " them; without job: no job can.",
        "quarantine",
    ),
    Definition(
        "weir_coverage_received_records_total",
        "counter",
        _BROKER,
        "Records read of the broker, quarantined ones included.",
        "coverage_counts",
    ),
    Definition(
        "weir_coverage_quarantined_records_total",
        "counter",
        _BROKER,
        "Of these, records that broke a rule.",
        "coverage_counts",
    ),
    Definition(
        "weir_coverage_gaps_total",
        "counter",
        _BROKER,
        "Gaps that feeds of the broker have announced.",
        "coverage_gaps",
    ),
    Definition(
        "weir_coverage_dropped_events_total",
        "counter",
        _BROKER,
        "Events that these gaps dropped, as far as feeds know.",
        "coverage_gaps",
    ),
    Definition(
        "weir_coverage_blind_until_timestamp_seconds",
        "gauge",
        (*_BROKER, "job"),
        "Time until which the job is blind for the newest gap (s since the epoch).",
        "coverage_gaps",
    ),
    Definition(
        "weir_reconcile_numbers",
        "gauge",
        (*_BROKER, "result"),
        "Numbers of the newest comparison with the broker's own, by result: agree, differ or"
        " not_compared.",
        "reconciliation",
    ),
    Definition(
        "weir_reconcile_compared_timestamp_seconds",
        "gauge",
        _BROKER,
        "Time up to which the broker's numbers were compared (s since the epoch).",
        "reconciliation",
    ),
    Definition(
        "weir_forecast_known_timestamp_seconds",
        "gauge",
        (),
        "End of the newest hour that the newest forecasts follow from (s since the epoch).",
        "forecasts",
    ),
    Definition(
        "weir_forecast_limits",
        "gauge",
        ("kind", "method", "result"),
        "Limits of the newest forecasts, by result: breached, expected (to be reached), none"
        " (is expected), or unknown.",
        "forecasts",
    ),
    Definition(
        "weir_forecast_breach_timestamp_seconds",
        "gauge",
        _FORECAST,
        "Time at which the limit is expected to be reached (s since the epoch), of those"
        " that are reached soonest.",
        "forecasts",
        True,
    ),
    Definition(
        "weir_forecast_predicted_ratio",
        "gauge",
        _FORECAST,
        "Of these, the predicted highest use of a day / limit.",
        "forecasts",
        True,
    ),
    Definition(
        "weir_forecast_error_ratio",
        "gauge",
        _FORECAST,
        "Of these, the mean error of past forecasts / limit.",
        "forecasts",
        True,
    ),
    Definition(
        "weir_shadow_effects_total",
        "counter",
        ("cluster", "policy", "measure"),
        "What policies did, by shadow, and of those that hold as policy live: pauses,"
        " paused_s, victim_s, throttled_ids, rejected_ids, checks_over_quota,"
        " evicted_entries, refused_producers, as in shadow_effects; none without shadows.",
        "shadow_effects",
    ),
    Definition("weir_table_rows", "gauge", ("table",), "Rows of the table.", "log"),
    Definition("weir_table_bytes", "gauge", ("table",), "Bytes of its data files.", "log"),
    Definition("weir_table_files", "gauge", ("table",), "Its data files.", "log"),
    Definition("weir_table_version", "gauge", ("table",), "Its Delta version.", "log"),
    Definition(
        "weir_table_committed_timestamp_seconds",
        "gauge",
        ("table",),
        "Time of its newest commit that changed rows (s since the epoch).",
        "log",
    ),
    Definition(
        "weir_table_newest_event_timestamp_seconds",
        "gauge",
        ("table",),
        "Time of its newest row (s since the epoch, event time).",
        "log",
    ),
    Definition(
        "weir_alerts_firing",
        "gauge",
        ("alert", "severity"),
        "Alerts that fire, by the last `alerts check`; 0 when all were resolved.",
        "alerts",
    ),
    Definition(
        "weir_policy_version",
        "gauge",
        ("query",),
        "Version of the configured policies that the query judges by.",
        "policies",
    ),
    Definition(
        "weir_policy_read_timestamp_seconds",
        "gauge",
        ("query",),
        "When that version was read (s since the epoch).",
        "policies",
    ),
    Definition(
        "weir_policy_edit_refused",
        "gauge",
        ("query",),
        "1 while the newest edit of the policies is one that was refused.",
        "policies",
    ),
    Definition(
        "weir_quality_expectations",
        "gauge",
        ("table", "result"),
        "Expectations of the newest audit, by result: held or failed.",
        "quality_results",
    ),
    Definition(
        "weir_quality_checked_timestamp_seconds",
        "gauge",
        (),
        "When the newest audit ran (s since the epoch).",
        "quality_results",
    ),
)

_EXPORTER = (
    Definition(
        "weir_exporter_up",
        "gauge",
        (),
        "1 if the last refresh read the whole warehouse and is not overdue.",
        "exporter",
    ),
    Definition(
        "weir_exporter_errors_total",
        "counter",
        ("table",),
        "Refreshes in which the table could not be read; without table: the warehouse.",
        "exporter",
    ),
    Definition(
        "weir_exporter_refreshes_total",
        "counter",
        (),
        "Refreshes since the exporter began.",
        "exporter",
    ),
    Definition(
        "weir_exporter_refresh_duration_seconds",
        "gauge",
        (),
        "Duration of the last refresh.",
        "exporter",
    ),
    Definition(
        "weir_exporter_refresh_timestamp_seconds",
        "gauge",
        (),
        "When the last refresh ended (s since the epoch).",
        "exporter",
    ),
    Definition(
        "weir_exporter_entities",
        "gauge",
        ("family", "series"),
        "Entities with their own series (own), and entities that have breached without (none).",
        "exporter",
    ),
)

SECTIONS: dict[str, tuple[Definition, ...]] = {
    "Publish rate limits": _RATE_LIMITS,
    "Quotas of every job": _QUOTAS,
    "Backlogs": _BACKLOGS,
    "Kafka groups": _GROUPS,
    "Producer ids": _PRODUCER_IDS,
    "Chunked messages": _CHUNKS,
    "Entry cache": _CACHES,
    "Owners": _OWNERS,
    "The stream and its tables": _STREAM,
    "The exporter itself": _EXPORTER,
}
METRICS: dict[str, Definition] = {d.name: d for part in SECTIONS.values() for d in part}
