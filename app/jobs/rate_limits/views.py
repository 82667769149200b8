"""Views of the job: pauses of connections, throttle commands, and Pulsar's own metrics."""

from __future__ import annotations

from app.jobs.rate_limits.pauses import PAUSE_NO, WERE_PAUSED
from app.tables.view import View
from state.rate_limits.outputs import LIMITER_NAMES

# Rows outside a pause are left out. Engines disagree about aggregating nothing into an array: the
# intersections leave out the placeholder of no value. Only a topic's own limit has a culprit.
_THROTTLE_INTERVALS = f"""
WITH flagged AS (
  SELECT cluster, broker, cnx_id, ts_wall_ms, ts_mono_ns, row_no, reason, limiter,
    coalesce(trigger_topic, '') AS publisher,
    concat(limiter, ' ', coalesce(limiter_name, '')) AS whose, reads_paused, seen_until_ns,
    {WERE_PAUSED}
  FROM throttle_events
), rows_of_pauses AS (
  SELECT *, reads_paused AND NOT were_paused AS starts, were_paused AND NOT reads_paused AS ends,
    {PAUSE_NO}
  FROM flagged
)
SELECT
  cluster,
  broker,
  cnx_id,
  min(ts_mono_ns) FILTER (WHERE starts) AS start_ns,
  min(coalesce(seen_until_ns, ts_mono_ns)) FILTER (WHERE ends) AS end_ns,
  min(ts_wall_ms) FILTER (WHERE starts) AS start_ms,
  min(ts_wall_ms - coalesce(CAST(floor((ts_mono_ns - seen_until_ns) / 1000000) AS BIGINT), 0))
    FILTER (WHERE ends) AS end_ms,
  array_sort(array_agg(DISTINCT reason) FILTER (WHERE reason IS NOT NULL)) AS reasons,
  array_sort(array_intersect(
    array_agg(DISTINCT CASE WHEN limiter = 'topic' THEN publisher ELSE 'none' END),
    array_agg(DISTINCT publisher))) AS culprit_topics,
  array_sort(array_intersect(
    array_agg(DISTINCT CASE WHEN limiter = 'topic' THEN 'none' ELSE whose END),
    array_agg(DISTINCT whose))) AS shared_limits,
  bool_and(seen_until_ns IS NULL) FILTER (WHERE ends) AS end_seen
FROM rows_of_pauses
WHERE pause_no > 0 AND (reads_paused OR ends)
GROUP BY cluster, broker, cnx_id, pause_no
""".strip()

# Sums since the tables begin, under the names that a broker's or a client's own metrics have. Of
# the connection counter, `throttled` and `unthrottled` count the in-flight reason alone, as brokers
# do. The dispatch metrics of PIP-406 have no counterpart: Weir follows no dispatch limiter.
_THROTTLE_METRICS = f"""
WITH pauses AS (
  SELECT cluster, broker, cnx_id, reads_paused, limiter, transition, action,
    {WERE_PAUSED}
  FROM throttle_events
), connections AS (
  SELECT cluster, broker,
    sum(CASE WHEN reads_paused AND NOT were_paused THEN 1 ELSE 0 END) AS paused,
    sum(CASE WHEN were_paused AND NOT reads_paused THEN 1 ELSE 0 END) AS resumed,
    sum(CASE WHEN limiter = 'connection' AND action = 'mark' AND transition <> 'Dropped'
      THEN 1 ELSE 0 END) AS throttled,
    sum(CASE WHEN limiter = 'connection' AND action = 'unmark' AND transition <> 'Dropped'
      THEN 1 ELSE 0 END) AS unthrottled
  FROM pauses GROUP BY cluster, broker
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
        " end_ns and end_ms are null while it is paused.",
        _THROTTLE_INTERVALS,
        reads=("throttle_events",),
    ),
    View(
        "throttle_metrics",
        "Counts of throttling under the names of Pulsar's own metrics, for comparison.",
        _THROTTLE_METRICS,
        reads=("producer_throttle", "throttle_events", "topic_throttle_stats"),
    ),
)
