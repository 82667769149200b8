"""Every metric of the exporter: name, kind, labels and one sentence. Names come from here only.

Names with `pulsar_` and `kafka_` are upstream's, of the kind that upstream exposes them as: some of
its counters are of type gauge. Names of OpenTelemetry have dots there and underscores here.
"""

from __future__ import annotations

from app.jobs import every
from app.show.metrics.coverage_gauges import CoverageMetrics
from app.show.metrics.definition import BROKER, Definition, MetricsSection, defined
from app.show.metrics.forecast_gauges import Forecasts
from app.show.metrics.kept_figures import Checks, PolicyVersions
from app.show.metrics.quota_gauges import QuotaMetrics
from app.show.metrics.reconciliation import Reconciliation
from app.show.metrics.shadow_gauges import Shadows

_QUOTAS = (
    *defined(
        ("kind", *BROKER, "entity"),
        "quota_usage",
        (
            "weir_quota_breaches_total",
            "counter",
            "Windows, or checks, in which the quota was breached.",
        ),
        (
            "weir_quota_limit",
            "gauge",
            "The quota in the newest window, in its own unit: rates per second, bytes, seconds,"
            " requests.",
        ),
        ("weir_quota_used", "gauge", "Use of the quota in the newest window, in the same unit."),
        (
            "weir_quota_used_ratio",
            "gauge",
            "Used / limit in the newest window; absent for a limit of 0.",
        ),
        (
            "weir_quota_breached",
            "gauge",
            "1 if the quota was breached in the newest window or check, else 0.",
        ),
        bounded=True,
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
    *defined(
        ("query",),
        "progress",
        ("weir_query_batches_total", "counter", "Micro-batches completed since the run began."),
        ("weir_query_records_total", "counter", "Records read since the run began."),
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
        "weir_query_requests_total",
        "counter",
        ("query", "request"),
        "Requests of Spark to the object store since the run began, by kind, of all queries of the run"
        " in the series of one. Those that read and write tables are not counted.",
        "progress",
    ),
    *defined(
        ("query",),
        "progress",
        ("weir_query_batch_duration_seconds", "gauge", "Duration of the newest micro-batch."),
        (
            "weir_query_newest_event_timestamp_seconds",
            "gauge",
            "Time of the newest event read (s since the epoch); while a source lags, of its "
            "slowest partition.",
        ),
        ("weir_query_state_bytes", "gauge", "Bytes of the query's state."),
        (
            "weir_query_progress_timestamp_seconds",
            "gauge",
            "Time at which a micro-batch last ended or the query last waited for records"
            " (s since the epoch).",
        ),
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
        "weir_coverage_blind_until_timestamp_seconds",
        "gauge",
        (*BROKER, "job"),
        "Time until which the job is blind for the newest gap (s since the epoch).",
        "coverage_gaps",
    ),
    *defined(
        ("cluster", "source_feed"),
        "coverage_polls",
        ("weir_polls_unanswered_total", "counter", "Polls of the cluster that were not answered."),
        (
            "weir_poll_answered_timestamp_seconds",
            "gauge",
            "End of the newest poll that was answered (s since the epoch; 0: none).",
        ),
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
        ("kind", "result"),
        "Limits of the newest forecasts, by result: breached, expected (to be reached), none"
        " (is expected), or unknown.",
        "forecasts",
    ),
    *defined(
        ("kind", *BROKER, "entity"),
        "forecasts",
        (
            "weir_forecast_breach_timestamp_seconds",
            "gauge",
            "Time at which the limit is expected to be reached (s since the epoch), of those"
            " that are reached soonest.",
        ),
        (
            "weir_forecast_predicted_ratio",
            "gauge",
            "Of these, the predicted highest use of a day / limit.",
        ),
        (
            "weir_forecast_error_ratio",
            "gauge",
            "Of these, the mean error of past forecasts / limit.",
        ),
        bounded=True,
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
    *defined(
        ("table",),
        "log",
        ("weir_table_rows", "gauge", "Rows of the table."),
        ("weir_table_bytes", "gauge", "Bytes of its data files."),
        ("weir_table_files", "gauge", "Its data files."),
        (
            "weir_table_committed_timestamp_seconds",
            "gauge",
            "Time of its newest commit that changed rows (s since the epoch).",
        ),
        (
            "weir_table_newest_event_timestamp_seconds",
            "gauge",
            "Time of its newest row (s since the epoch, event time).",
        ),
    ),
    Definition(
        "weir_alerts_firing",
        "gauge",
        ("alert", "severity"),
        "Alerts that fire, by the last `alerts check`; 0 when all were resolved.",
        "alerts",
    ),
    *defined(
        ("query",),
        "policies",
        (
            "weir_policy_version",
            "gauge",
            "Version of the configured policies that the query judges by.",
        ),
        (
            "weir_policy_edit_refused",
            "gauge",
            "1 while the newest edit of the policies is one that was refused.",
        ),
    ),
    Definition(
        "weir_quality_expectations",
        "gauge",
        ("table", "result"),
        "Expectations of the newest audit, by result: held or failed.",
        "quality_results",
    ),
)

_EXPORTER = (
    Definition(
        "weir_alerts_info",
        "gauge",
        ("runbook_base",),
        "1 where `alerts.runbook_base` is set: the rules for Prometheus make addresses of their"
        " runbooks with it.",
        "the configuration",
    ),
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
    *defined(
        (),
        "exporter",
        ("weir_exporter_refresh_duration_seconds", "gauge", "Duration of the last refresh."),
        (
            "weir_exporter_refresh_timestamp_seconds",
            "gauge",
            "When the last refresh ended (s since the epoch).",
        ),
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
