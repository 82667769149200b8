"""Metrics of backlogs, under the names of Pulsar's own and with the values of `backlog_metrics`."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb

from app.jobs.backlog.views import METRICS
from app.read.databases import fileless, parsed
from app.read.spelling import NAMESPACE
from app.show.metrics.definition import BROKER, Definition, MetricsSection, defined
from app.show.metrics.entities import OTHER, Bounds, Entities, Key
from app.show.metrics.part import Labels, MetricsPart, Sample, labels, rows, scalar

SIZE = "pulsar_storage_backlog_size"
QUOTAS = ("size", "time")
"""Types of quota, in the order of the counters of a topic."""
DROPPED = "weir_backlog_dropped_entries_total"
EXPIRED = "weir_backlog_expired_unread_total"
TIME_TO_QUOTA = "weir_backlog_time_to_quota_seconds"
HORIZON_S = 3600
"""A topic that is predicted to reach its quota sooner has series."""

# What the view reads of its tables, cut down to what decides its answer: the newest check of each
# topic, and the sum of its evictions.
_CHECKS = """
SELECT cluster, topic, pass_ms, ts_wall_ms, row_no, backlog_bytes, limit_bytes, limit_s, age_s,
  oldest_timestamp_ms, oldest_subscription, switches FROM {table}
"""
_NEWEST = """
QUALIFY row_number() OVER (
  PARTITION BY cluster, topic ORDER BY pass_ms DESC, ts_wall_ms DESC, row_no DESC
) = 1
"""
_EVICTIONS = "SELECT cluster, topic, quota_type, count_delta FROM {table}"
_EXCEEDED = f"""
SELECT pass_ms, cluster, {NAMESPACE}, topic FROM backlog_checks
WHERE exceeded_size OR exceeded_time ORDER BY pass_ms, cluster, topic
"""
_NEAR = f"""
SELECT pass_ms, greatest(size_usage, time_usage) AS usage, cluster, {NAMESPACE}, topic
FROM backlog_checks WHERE greatest(size_usage, time_usage) >= $share
QUALIFY row_number() OVER (PARTITION BY cluster, topic ORDER BY pass_ms DESC) = 1
ORDER BY pass_ms, cluster, topic
"""
# The subscription that reaches the quota first speaks for its topic. Predictions are kept of every
# topic, since its check may be committed later.
_PREDICTIONS = f"""
SELECT cluster, {NAMESPACE} AS namespace, topic, pass_ms, min(time_to_quota_s) AS seconds
FROM backlog_subscriptions GROUP BY cluster, topic, pass_ms
"""
_SOON = f"""
SELECT max(pass_ms) AS pass_ms, cluster, namespace, topic FROM ({_PREDICTIONS})
WHERE seconds > 0 AND seconds < {HORIZON_S}
GROUP BY cluster, namespace, topic ORDER BY pass_ms, cluster, topic
"""
_NEWEST_PREDICTION = """
QUALIFY row_number() OVER (PARTITION BY cluster, topic ORDER BY pass_ms DESC) = 1
"""
_PREDICTED = """
SELECT cluster, namespace, topic, seconds FROM predictions WHERE seconds IS NOT NULL
"""
_DROPPED = f"""
SELECT ts_wall_ms, cluster, {NAMESPACE}, topic, quota_type, sum(entries_skipped)
FROM backlog_evictions WHERE NOT phantom AND entries_skipped > 0
GROUP BY ALL ORDER BY ts_wall_ms, cluster, topic, quota_type
"""
_EXPIRED = f"""
SELECT pass_ms, cluster, {NAMESPACE}, topic, sum(expired_unread)
FROM backlog_subscriptions WHERE expired_unread > 0
GROUP BY ALL ORDER BY pass_ms, cluster, topic
"""
_BY_NAMESPACE = f"SELECT cluster, {NAMESPACE}, sum(backlog_bytes) FROM backlog_checks GROUP BY ALL"


class Backlogs(MetricsPart):
    """Backlogs and their quotas."""

    reads = ("backlog_checks", "backlog_evictions", "backlog_subscriptions")

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self._topics = Entities(bounds, len(QUOTAS) + 1)
        """Entries dropped for each type of quota, and messages that expired."""
        self._kept = fileless()
        for table, columns in (
            (
                "backlog_checks",
                "cluster VARCHAR, topic VARCHAR, pass_ms BIGINT, ts_wall_ms BIGINT,"
                " row_no INTEGER, backlog_bytes BIGINT, limit_bytes BIGINT, limit_s BIGINT,"
                " age_s BIGINT, oldest_timestamp_ms BIGINT, oldest_subscription VARCHAR,"
                " switches MAP(VARCHAR, VARCHAR)",
            ),
            (
                "backlog_evictions",
                "cluster VARCHAR, topic VARCHAR, quota_type VARCHAR, count_delta BIGINT",
            ),
            (
                "predictions",
                "cluster VARCHAR, namespace VARCHAR, topic VARCHAR, pass_ms BIGINT, seconds DOUBLE",
            ),
        ):
            self._kept.execute(f"CREATE TEMP TABLE {table} ({columns})")
        view = f"CREATE TEMP VIEW backlog_metrics AS {METRICS.sql}"
        self._kept.execute(parsed(self._kept, view))

    def take(self, fresh: duckdb.DuckDBPyConnection) -> None:
        self._take_topics(fresh)
        checks = _CHECKS.format(table="backlog_checks")
        self._kept.register("fresh", fresh.sql(checks + _NEWEST).to_arrow_table())
        self._kept.execute(
            f"CREATE OR REPLACE TEMP TABLE backlog_checks AS SELECT * FROM ({checks} UNION ALL"
            f" {_CHECKS.format(table='fresh')}) {_NEWEST}"
        )
        evictions = _EVICTIONS.format(table="backlog_evictions")
        self._kept.register("fresh", fresh.sql(evictions).to_arrow_table())
        self._kept.execute(
            "CREATE OR REPLACE TEMP TABLE backlog_evictions AS SELECT cluster, topic, quota_type,"
            f" sum(count_delta)::BIGINT AS count_delta FROM ({evictions} UNION ALL"
            f" {_EVICTIONS.format(table='fresh')}) GROUP BY ALL"
        )
        self._kept.register(
            "fresh", fresh.sql(f"FROM ({_PREDICTIONS}) {_NEWEST_PREDICTION}").to_arrow_table()
        )
        self._kept.execute(
            "CREATE OR REPLACE TEMP TABLE predictions AS FROM (SELECT cluster, namespace, topic,"
            " pass_ms, min(seconds) AS seconds FROM (FROM predictions UNION ALL FROM fresh)"
            " GROUP BY ALL)" + _NEWEST_PREDICTION
        )
        self._kept.unregister("fresh")

    def _take_topics(self, fresh: duckdb.DuckDBPyConnection) -> None:
        """Topics that exceed a quota, drop messages for it, are near it, or will soon reach it, and
        those whose messages expire."""
        nothing = [0.0] * (len(QUOTAS) + 1)
        for pass_ms, *names in rows(fresh, _EXCEEDED):
            key = labels(names)
            self._topics.breach(pass_ms, key, nothing, _rest(key))
        for at_ms, *names, quota_type, skipped in rows(fresh, _DROPPED):
            key, counts = labels(names), list(nothing)
            counts[QUOTAS.index(quota_type)] = skipped
            self._topics.breach(at_ms, key, counts, _rest(key))
        for pass_ms, *names, expired in rows(fresh, _EXPIRED):
            key = labels(names)
            self._topics.breach(pass_ms, key, [*nothing[:-1], expired], _rest(key))
        for pass_ms, usage, *names in rows(fresh, _NEAR, {"share": self.bounds.share}):
            self._topics.near(pass_ms, labels(names), usage)
        for pass_ms, *names in rows(fresh, _SOON):
            key = labels(names)
            if key not in self._topics:
                self._topics.near(pass_ms, key, 0.0)
        self._topics.advance(scalar(fresh, "SELECT max(pass_ms) FROM backlog_checks"))

    def samples(self) -> Iterator[Sample]:
        rest: dict[str, float] = {}
        found = rows(
            self._kept,
            "SELECT metric, cluster, namespace, topic, quota_type, value FROM backlog_metrics",
        )
        for metric, cluster, namespace, topic, quota_type, value in found:
            key = labels((cluster, namespace, topic))
            kinds = () if quota_type is None else (quota_type,)
            if metric.startswith("pulsar_broker_"):
                yield metric, (key[0], *kinds), value
            elif topic is None or (self.bounds.shows_topics and key in self._topics):
                yield metric, (*key, *kinds), value
            elif metric == SIZE:
                rest[key[0]] = rest.get(key[0], 0.0) + value
        yield from self._topic_samples()
        if self.bounds.shows_topics:
            for cluster, size in rest.items():
                yield SIZE, (cluster, "", OTHER), size
        else:
            for cluster, namespace, size in rows(self._kept, _BY_NAMESPACE):
                yield SIZE, labels((cluster, namespace, None)), size

    def _topic_samples(self) -> Iterator[Sample]:
        """What the view `backlog_metrics` does not have. Counters are summed by namespace where
        there are no series of topics."""
        dropped: dict[Labels, float] = {}
        expired: dict[Labels, float] = {}
        for part in (self._topics.counters(), self._topics.others()):
            for key, counts in part:
                shown = key if self.bounds.shows_topics else (*key[:2], "")
                for quota_type, count in zip(QUOTAS, counts[:-1], strict=True):
                    series = (*shown, quota_type)
                    dropped[series] = dropped.get(series, 0.0) + count
                expired[shown] = expired.get(shown, 0.0) + counts[-1]
        for series, count in dropped.items():
            yield DROPPED, series, count
        for series, count in expired.items():
            yield EXPIRED, series, count
        if self.bounds.shows_topics:
            for *names, seconds in rows(self._kept, _PREDICTED):
                key = labels(names)
                if key in self._topics:
                    yield TIME_TO_QUOTA, key, seconds

    def families(self) -> dict[str, Entities]:
        return {"backlogs": self._topics}


def _rest(key: Key) -> Key:
    """The series of the topics of a cluster that have none of their own."""
    return key[0], "", OTHER


_BACKLOG = ("cluster", "namespace", "topic")
_DEFINITIONS = (
    *defined(
        _BACKLOG,
        "backlog_checks",
        (
            "pulsar_storage_backlog_size",
            "gauge",
            "Size of the backlog at the newest check (bytes).",
        ),
        ("pulsar_storage_backlog_quota_limit", "gauge", "Size quota (bytes); -1 without one."),
        ("pulsar_storage_backlog_quota_limit_time", "gauge", "Time quota (s); -1 without one."),
        (
            "pulsar_storage_backlog_age_seconds",
            "gauge",
            "Age of the oldest unacknowledged message; -1 if none or unknown. It has grown since"
            " its check, as a broker's does (age_reading: live). Topic level only.",
        ),
        bounded=True,
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
        "pulsar_storage_backlog_quota_check_duration_seconds",
        "histogram",
        (*BROKER, "le"),
        "The broker's own histogram of the durations of its checks, as reconcile has read it"
        " last: with brokers of the section reconcile only.",
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
    *defined(
        _BACKLOG,
        "backlog_subscriptions",
        (
            "weir_backlog_expired_unread_total",
            "counter",
            "Messages that expired before a subscription read them; of namespaces if topic level"
            " metrics are off.",
        ),
        (
            "weir_backlog_time_to_quota_seconds",
            "gauge",
            "Predicted time until the first subscription of the topic brings it to a quota; 0 if"
            " it is exceeded, absent without a prediction. Topic level only.",
        ),
        bounded=True,
    ),
)
BACKLOGS = MetricsSection("Backlogs", _DEFINITIONS, (Backlogs,), place=2)
