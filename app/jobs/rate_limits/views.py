"""Views of the job: pauses of connections, throttle commands, and Pulsar's own metrics."""

from __future__ import annotations

from app.jobs.rate_limits.pauses import CHANGES, CULPRITS, INTERVALS, numbered
from app.jobs.rate_limits.publish_limits import VIEWS as OF_LIMITS
from app.tables.view import View
from state.rate_limits.outputs import LIMITER_NAMES

_WITH_NUMBERED = f"""
WITH numbered AS (
{numbered()}
)
""".strip()

# Sums since the tables begin, under the names that a broker's or a client's own metrics have. Of
# the connection counter, `throttled` and `unthrottled` count the in-flight reason alone, as brokers
# do. The dispatch metrics of PIP-406 have no counterpart: Weir follows no dispatch limiter.
_THROTTLE_METRICS = f"""
{_WITH_NUMBERED}, connections AS (
  SELECT t.cluster, t.broker, {CHANGES}
  FROM numbered AS t GROUP BY t.cluster, t.broker
), topics AS (
  SELECT cluster, broker, topic, sum(limited_times) AS limited
  FROM topic_throttle_stats GROUP BY cluster, broker, topic
)
SELECT 'pulsar.client.producer.throttled_times' AS metric, 'counter' AS kind, cluster, broker,
  topic, reason, CAST(NULL AS STRING) AS limiter, CAST(NULL AS STRING) AS operation,
  CAST(sum(pause_ms) AS BIGINT) AS value
FROM producer_throttle WHERE request_id IS NOT NULL AND exception IS NULL
GROUP BY cluster, broker, topic, reason
UNION ALL
SELECT 'pulsar.broker.topic.publish.rate.limit.count', 'counter', cluster, broker, topic, NULL,
  name, NULL, CAST(sum(limited_by_limiter[name]) AS BIGINT)
FROM topic_throttle_stats
CROSS JOIN (VALUES {", ".join(f"('{name}')" for name in LIMITER_NAMES)}) AS limiters(name)
GROUP BY cluster, broker, topic, name HAVING sum(limited_by_limiter[name]) > 0
UNION ALL
SELECT 'pulsar_publish_rate_limit_times', 'counter', cluster, broker, topic, NULL, NULL, NULL,
  CAST(limited AS BIGINT) FROM topics
UNION ALL
SELECT 'publishRateLimitedTimes', 'counter', cluster, broker, topic, NULL, NULL, NULL,
  CAST(limited AS BIGINT) FROM topics
UNION ALL
SELECT 'pulsar.broker.connection.rate_limit.count', 'counter', cluster, broker, NULL, NULL, NULL,
  name, CAST(CASE name WHEN 'paused' THEN paused WHEN 'resumed' THEN resumed
    WHEN 'throttled' THEN throttled ELSE unthrottled END AS BIGINT)
FROM connections
CROSS JOIN (VALUES ('paused'), ('resumed'), ('throttled'), ('unthrottled')) AS operations(name)
UNION ALL
SELECT 'pulsar_broker_throttled_connections', 'gauge', cluster, broker, NULL, NULL, NULL, NULL,
  CAST(paused - resumed AS BIGINT) FROM connections
""".strip()

VIEWS = (
    View(
        "throttle_intervals",
        "One row per pause of a connection: start, end, reasons, culprits and shared limits;"
        " end_ns, end_ms and paused_ns are null while it is paused. It belongs to the limit that began it:"
        " limiter, limiter_name, trigger_topic and reason. topics: those with a producer on the connection.",
        f"{_WITH_NUMBERED}\n{INTERVALS}",
        reads=("throttle_events",),
    ),
    View(
        "pause_culprits",
        "One row per pause of a connection and topic whose own limit held it, from since_ms on; the other"
        " topics of the connection are its victims.",
        f"{_WITH_NUMBERED}\n{CULPRITS}",
        reads=("throttle_events",),
    ),
    *OF_LIMITS,
    View(
        "throttle_metrics",
        "Counts of throttling under the names of Pulsar's own metrics, for comparison.",
        _THROTTLE_METRICS,
        reads=("producer_throttle", "throttle_events", "topic_throttle_stats"),
    ),
)
