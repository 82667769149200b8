"""Metrics of backlogs, under the names of Pulsar's own and with the values of `backlog_metrics`."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb

from app.backlog_views import NAMESPACE
from app.telemetry.entities import OTHER, Bounds, Entities
from app.telemetry.part import Part, Sample, Sums, labels, rows, scalar
from app.views import VIEWS

SIZE = "pulsar_storage_backlog_size"

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
_REFUSED = "SELECT cluster, quota_type, count(*) FROM producer_refusals GROUP BY ALL"
_BY_NAMESPACE = f"SELECT cluster, {NAMESPACE}, sum(backlog_bytes) FROM backlog_checks GROUP BY ALL"


class Backlogs(Part):
    """Backlogs and their quotas."""

    reads = ("backlog_checks", "backlog_evictions", "producer_refusals")

    def __init__(self, bounds: Bounds, topic_level: bool = True) -> None:
        """Without `topic_level` there are no series of topics, as without the broker's setting
        `exposeTopicLevelMetricsInPrometheus`."""
        self._topics = Entities(bounds, 1)
        self._topic_level = topic_level
        self._refused = Sums("weir_backlog_refusals_total")
        self._kept = duckdb.connect()
        for table, columns in (
            ("backlog_checks", "cluster VARCHAR, topic VARCHAR, pass_ms BIGINT, ts_wall_ms BIGINT,"
             " row_no INTEGER, backlog_bytes BIGINT, limit_bytes BIGINT, limit_s BIGINT,"
             " age_s BIGINT, oldest_timestamp_ms BIGINT, oldest_subscription VARCHAR,"
             " switches MAP(VARCHAR, VARCHAR)"),
            ("backlog_evictions",
             "cluster VARCHAR, topic VARCHAR, quota_type VARCHAR, count_delta BIGINT"),
        ):
            self._kept.execute(f"CREATE TABLE {table} ({columns})")
        self._kept.execute(f"CREATE VIEW backlog_metrics AS {VIEWS['backlog_metrics'].sql}")

    def take(self, fresh: duckdb.DuckDBPyConnection) -> None:
        for pass_ms, *names in rows(fresh, _EXCEEDED):
            self._topics.breach(pass_ms, labels(names), [1.0])
        self._topics.advance(scalar(fresh, "SELECT max(pass_ms) FROM backlog_checks"))
        self._refused.add(rows(fresh, _REFUSED))
        checks = _CHECKS.format(table="backlog_checks")
        self._kept.register("fresh", fresh.sql(checks + _NEWEST).to_arrow_table())
        self._kept.execute(
            f"CREATE OR REPLACE TABLE backlog_checks AS SELECT * FROM ({checks} UNION ALL"
            f" {_CHECKS.format(table='fresh')}) {_NEWEST}"
        )
        evictions = _EVICTIONS.format(table="backlog_evictions")
        self._kept.register("fresh", fresh.sql(evictions).to_arrow_table())
        self._kept.execute(
            "CREATE OR REPLACE TABLE backlog_evictions AS SELECT cluster, topic, quota_type,"
            f" sum(count_delta)::BIGINT AS count_delta FROM ({evictions} UNION ALL"
            f" {_EVICTIONS.format(table='fresh')}) GROUP BY ALL"
        )
        self._kept.unregister("fresh")

    def samples(self) -> Iterator[Sample]:
        yield from self._refused.samples()
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
            elif topic is None or (self._topic_level and key in self._topics):
                yield metric, (*key, *kinds), value
            elif metric == SIZE:
                rest[key[0]] = rest.get(key[0], 0.0) + value
        if self._topic_level:
            for cluster, size in rest.items():
                yield SIZE, (cluster, "", OTHER), size
        else:
            for cluster, namespace, size in rows(self._kept, _BY_NAMESPACE):
                yield SIZE, labels((cluster, namespace, None)), size

    def families(self) -> dict[str, Entities]:
        return {"backlogs": self._topics}
