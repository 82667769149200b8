"""Every metric of the exporter: name, kind, labels and one sentence. Names come from here only.

Names with `pulsar_` and `kafka_` are upstream's, of the kind that upstream exposes them as: some of
its counters are of type gauge. Names of OpenTelemetry have dots there and underscores here.
"""

from __future__ import annotations

from app.jobs import every
from app.show.metrics.coverage_gauges import CoverageMetrics
from app.show.metrics.definition import BROKER, Definition, MetricsSection
from app.show.metrics.forecast_gauges import Forecasts
from app.show.metrics.kept_figures import Checks, PolicyVersions
from app.show.metrics.quota_gauges import QuotaMetrics
from app.show.metrics.reconciliation import Reconciliation
from app.show.metrics.shadow_gauges import Shadows

_FORECAST = ("kind", *BROKER, "entity", "method")

_QUOTAS = (
    Definition(
        "weir_quota_breaches_total",
        "counter",
        ("kind", *BROKER, "entity"),
        "Windows, or checks, in which the quota was breached.",
        "quota_usage",
        True,
    ),
    Definition(
        "weir_quota_limit",
        "gauge",
        ("kind", *BROKER, "entity"),
        "The quota in the newest window, in its own unit: rates per second, bytes, seconds,"
        " requests.",
        "quota_usage",
        True,
    ),
    Definition(
        "weir_quota_used",
        "gauge",
        ("kind", *BROKER, "entity"),
        "Use of the quota in the newest window, in the same unit.",
        "quota_usage",
        True,
    ),
    Definition(
        "weir_quota_used_ratio",
        "gauge",
        ("kind", *BROKER, "entity"),
        "Used / limit in the newest window; absent for a limit of 0.",
        "quota_usage",
        True,
    ),
    Definition(
        "weir_quota_breached",
        "gauge",
        ("kind", *BROKER, "entity"),
        "1 if the quota was breached in the newest window or check, else 0.",
        "quota_usage",
        True,
    ),
    Definition(
        "weir_quota_used_ratio_max",
        "gauge",
        ("kind", *BROKER),
        "The largest used / limit of the newest window, of all entities.",
        "quota_usage",
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
        BROKER,
        "Records read of the broker, quarantined ones included.",
        "coverage_counts",
    ),
    Definition(
        "weir_coverage_quarantined_records_total",
        "counter",
        BROKER,
        "Of these, records that broke a rule.",
        "coverage_counts",
    ),
    Definition(
        "weir_coverage_gaps_total",
        "counter",
        BROKER,
        "Gaps that feeds of the broker have announced.",
        "coverage_gaps",
    ),
    Definition(
        "weir_coverage_dropped_events_total",
        "counter",
        BROKER,
        "Events that these gaps dropped, as far as feeds know.",
        "coverage_gaps",
    ),
    Definition(
        "weir_coverage_blind_until_timestamp_seconds",
        "gauge",
        (*BROKER, "job"),
        "Time until which the job is blind for the newest gap (s since the epoch).",
        "coverage_gaps",
    ),
    Definition(
        "weir_polls_unanswered_total",
        "counter",
        ("cluster", "source_feed"),
        "Polls of the cluster that were not answered.",
        "coverage_polls",
    ),
    Definition(
        "weir_poll_answered_timestamp_seconds",
        "gauge",
        ("cluster", "source_feed"),
        "End of the newest poll that was answered (s since the epoch; 0: none).",
        "coverage_polls",
    ),
    Definition(
        "weir_reconcile_numbers",
        "gauge",
        (*BROKER, "result"),
        "Numbers of the newest comparison with the broker's own, by result: agree, differ or"
        " not_compared.",
        "reconciliation",
    ),
    Definition(
        "weir_reconcile_compared_timestamp_seconds",
        "gauge",
        BROKER,
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

_OF_STREAM = (Checks, CoverageMetrics, PolicyVersions, Reconciliation, Forecasts, Shadows)

SECTIONS: tuple[MetricsSection, ...] = tuple(
    sorted(
        (
            *every("metrics", "METRICS"),
            MetricsSection("Quotas of every job", _QUOTAS, (QuotaMetrics,), place=1),
            MetricsSection("Owners", _OWNERS),
            MetricsSection("The stream and its tables", _STREAM, _OF_STREAM),
            MetricsSection("The exporter itself", _EXPORTER),
        ),
        key=lambda section: section.place,
    )
)
METRICS: dict[str, Definition] = {one.name: one for part in SECTIONS for one in part.definitions}
