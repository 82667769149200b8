"""Metrics of the job: pauses by topic, connections, and throttle commands to clients."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb

from app.jobs.rate_limits.pauses import CHANGES, numbered
from app.read.databases import parsed
from app.read.spelling import NAMESPACE
from app.show.metrics.definition import BROKER, Definition, MetricsSection, defined
from app.show.metrics.entities import OTHER, Bounds, Entities
from app.show.metrics.part import Labels, MetricsPart, Sample, Sums, labels, rows, scalar
from app.tables.definitions import TABLES
from state.rate_limits.outputs import LIMITER_NAMES

ROLES = ("culprit", "shared", "collateral")
OPERATIONS = ("paused", "resumed", "throttled", "unthrottled")
NS_PER_S = 1e9

_TOPICS = f"""
SELECT window_start_ms + window_ms AS at_ms, cluster, broker, {NAMESPACE}, topic,
  limited_times, culprit_times, shared_times, collateral_times,
  culprit_ns, shared_ns, collateral_ns,
  {", ".join(f"coalesce(limited_by_limiter['{name}'], 0)" for name in LIMITER_NAMES)}
FROM topic_throttle_stats
WHERE limited_times > 0 OR culprit_ns > 0 OR shared_ns > 0 OR collateral_ns > 0
ORDER BY at_ms, cluster, broker, topic
"""
_PUBLISHED = """
SELECT cluster, broker, sum(messages), sum(bytes)
FROM topic_throttle_stats GROUP BY cluster, broker
"""
_COMMANDS = f"""
SELECT coalesce(ts_wall_ms, 0) AS at_ms, cluster, broker, {NAMESPACE}, topic, reason, pause_ms
FROM producer_throttle WHERE request_id IS NOT NULL AND exception IS NULL
ORDER BY at_ms, cluster, broker, topic, reason
"""
THROTTLED = "ProducerThrottledException"
_TIMEOUTS = f"""
SELECT ts_wall_ms AS at_ms, cluster, broker, {NAMESPACE}, topic, exception, count(*)
FROM producer_throttle WHERE exception IS NOT NULL AND sequence_id IS NOT NULL
GROUP BY ALL ORDER BY at_ms NULLS FIRST, cluster, broker, topic, exception
"""
# As in the view `throttle_metrics`, which reads the whole table: here only new rows are read, in the
# same order, after a row of its own for each connection that was paused before them.
_EVERY = """
(SELECT cluster, broker, cnx_id, ts_wall_ms, ts_mono_ns, row_no, reads_paused, limiter, transition,
    action, false AS is_kept FROM throttle_events
  UNION ALL
  SELECT cluster, broker, cnx_id, NULL, NULL, -1, true, NULL, NULL, NULL, true FROM were_paused) AS t
""".strip()
_CONNECTIONS = f"CREATE OR REPLACE TEMP TABLE connections AS {numbered(_EVERY)}"
_COUNTED = f"""
SELECT t.cluster, t.broker, {CHANGES} FROM connections AS t WHERE NOT t.is_kept GROUP BY ALL
"""
_PAUSED = """
SELECT cluster, broker, cnx_id FROM connections
GROUP BY ALL HAVING count_if(starts) > count_if(ends)
"""


class Throttles(MetricsPart):
    """Publish throttling."""

    reads = ("topic_throttle_stats", "producer_throttle", "throttle_events")

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self._topics = Entities(bounds, 1 + 2 * len(ROLES) + len(LIMITER_NAMES))
        self._told = Entities(bounds, 1)
        self._timeouts = Entities(bounds, 1)
        self._published = Sums("weir_published_messages_total", "weir_published_bytes_total")
        self._counted: dict[Labels, list[float]] = {}
        self._paused = TABLES["throttle_events"].schema.empty_table()

    def take(self, fresh: duckdb.DuckDBPyConnection) -> None:
        for at_ms, cluster, broker, namespace, topic, *amounts in rows(fresh, _TOPICS):
            key = labels((cluster, broker, namespace, topic))
            limited, culprit = amounts[:2]
            self._topics.breach(
                at_ms, key, amounts, (key[0], key[1], "", OTHER), weight=(culprit, limited)
            )
        now_ms = scalar(fresh, "SELECT max(window_start_ms + window_ms) FROM topic_throttle_stats")
        self._topics.advance(now_ms)
        self._published.add(rows(fresh, _PUBLISHED))
        for at_ms, cluster, broker, namespace, topic, reason, pause_ms in rows(fresh, _COMMANDS):
            key = labels((cluster, broker, namespace, topic, reason))
            self._told.breach(at_ms, key, [pause_ms or 0], (key[0], key[1], "", OTHER, key[4]))
            # A counter that first shows with 1 has no increase: it is there with 0 before.
            self._timeouts.near(at_ms, (*key[:4], THROTTLED), 0.0)
        self._told.advance(now_ms)
        for at_ms, *names, timeouts in rows(fresh, _TIMEOUTS):
            key = labels(names)
            self._timeouts.breach(at_ms or 0, key, [timeouts], (key[0], key[1], "", OTHER, key[4]))
        self._timeouts.advance(now_ms)
        self._take_connections(fresh)

    def _take_connections(self, fresh: duckdb.DuckDBPyConnection) -> None:
        """Only the connections that are paused now are kept from one time to the next."""
        fresh.register("were_paused", self._paused)
        fresh.execute(parsed(fresh, _CONNECTIONS))
        for cluster, broker, *counts in rows(fresh, _COUNTED):
            sums = self._counted.setdefault(labels((cluster, broker)), [0.0] * len(OPERATIONS))
            for index, count in enumerate(counts):
                sums[index] += count
        self._paused = fresh.sql(_PAUSED).to_arrow_table()

    def samples(self) -> Iterator[Sample]:
        for part in (self._topics.counters(), self._topics.others()):
            for key, amounts in part:
                yield from _topic_samples(key, amounts)
        for part in (self._told.counters(), self._told.others()):
            for key, (pause_ms,) in part:
                yield "pulsar_client_producer_throttled_times_total", key, pause_ms
        for part in (self._timeouts.counters(), self._timeouts.others()):
            for key, (timeouts,) in part:
                yield "weir_send_timeouts_total", key, timeouts
        yield from self._published.samples()
        for key, counts in self._counted.items():
            for name, count in zip(OPERATIONS, counts, strict=True):
                yield "pulsar_broker_connection_rate_limit_count_total", (*key, name), count
            yield "pulsar_broker_throttled_connections", key, counts[0] - counts[1]

    def families(self) -> dict[str, Entities]:
        return {
            "topics": self._topics,
            "throttled producers": self._told,
            "send timeouts": self._timeouts,
        }


def _topic_samples(key: Labels, amounts: list[float]) -> Iterator[Sample]:
    """The samples of one topic: of `_TOPICS`, the columns after the topic."""
    limited, *amounts = amounts
    times, paused, by_limiter = (
        amounts[: len(ROLES)],
        amounts[len(ROLES) : 2 * len(ROLES)],
        amounts[2 * len(ROLES) :],
    )
    yield "pulsar_publish_rate_limit_times", key, limited
    for role, pauses, paused_ns in zip(ROLES, times, paused, strict=True):
        yield "weir_topic_pauses_total", (*key, role), pauses
        yield "weir_topic_paused_seconds_total", (*key, role), paused_ns / NS_PER_S
    for name, count in zip(LIMITER_NAMES, by_limiter, strict=True):
        if count:
            yield "pulsar_broker_topic_publish_rate_limit_count_total", (*key, name), count


_TOPIC = (*BROKER, "namespace", "topic")
_OPERATION = "pulsar_connection_rate_limit_operation_name"
_DEFINITIONS = (
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
        BROKER,
        "Connections whose reads are paused.",
        "throttle_events",
    ),
    Definition(
        "pulsar_broker_connection_rate_limit_count_total",
        "counter",
        (*BROKER, _OPERATION),
        "Connections paused, resumed, throttled and unthrottled; the last two count only"
        " too many requests in flight (pulsar.broker.connection.rate_limit.count).",
        "throttle_events",
    ),
    *defined(
        (*_TOPIC, "role"),
        "topic_throttle_stats",
        (
            "weir_topic_pauses_total",
            "counter",
            "Pauses of connections that the topic was on, by role: for its own limit (culprit),"
            " a limit that it shares (shared) or that of other topics (collateral).",
        ),
        (
            "weir_topic_paused_seconds_total",
            "counter",
            "Time that the topic was paused, summed over connections, by role: culprit,"
            " shared or collateral.",
        ),
        bounded=True,
    ),
    *defined(
        BROKER,
        "topic_throttle_stats",
        ("weir_published_messages_total", "counter", "Messages published."),
        ("weir_published_bytes_total", "counter", "Bytes published."),
    ),
)
METRICS = (MetricsSection("Publish rate limits", _DEFINITIONS, (Throttles,), place=1),)
