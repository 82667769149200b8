"""Quotas of the job: publish rates, requests in flight, and buffered bytes."""

from __future__ import annotations

from app.tables.view import JobQuotas, Quota

# Buckets are limited by messages and bytes per second, connections by requests in flight, IO
# threads by bytes buffered. A bucket is breached where a charge left nothing
# in it, even if the window as a whole stayed below its limit. Connections stop at their limit, IO
# threads above it. `limit` is a keyword: only an alias may be called so.
_USAGE = """
SELECT concat(s.limiter, CASE n.name WHEN 'msgs' THEN '_msgs' ELSE '_bytes' END) AS kind,
  s.cluster AS cluster, s.broker AS broker, s.limiter_name AS entity,
  CASE n.name WHEN 'msgs' THEN s.limit_msgs ELSE s.limit_bytes END AS quota,
  CAST(CASE n.name WHEN 'msgs' THEN s.messages ELSE s.bytes END AS DOUBLE) * 1000 / s.window_ms
    AS used,
  CASE n.name WHEN 'msgs' THEN s.limit_msgs - s.min_balance_msgs
    ELSE s.limit_bytes - s.min_balance_bytes END AS most_used,
  coalesce(CASE n.name WHEN 'msgs' THEN s.min_balance_msgs ELSE s.min_balance_bytes END <= 0, false)
    AS breached,
  s.window_start_ms AS window_start_ms, s.window_ms AS window_ms
FROM limiter_stats AS s CROSS JOIN (VALUES ('msgs'), ('bytes')) AS n(name)
WHERE CASE n.name WHEN 'msgs' THEN s.limit_msgs ELSE s.limit_bytes END IS NOT NULL
UNION ALL
SELECT CASE s.limiter WHEN 'connection' THEN 'connection_requests'
    ELSE concat(s.limiter, '_bytes') END, s.cluster, s.broker, s.limiter_name,
  CAST(s.limit_level AS DOUBLE), CAST(s.max_level AS DOUBLE), CAST(s.max_level AS DOUBLE),
  CASE s.limiter WHEN 'connection' THEN s.max_level >= s.limit_level
    ELSE s.max_level > s.limit_level END,
  s.window_start_ms, s.window_ms
FROM limiter_stats AS s WHERE s.limit_level IS NOT NULL
""".strip()

QUOTAS = JobQuotas(
    (
        Quota("topic_msgs", of_topic=True),
        Quota("topic_bytes", of_topic=True),
        Quota("resource_group_msgs"),
        Quota("resource_group_bytes"),
        Quota("broker_msgs"),
        Quota("broker_bytes"),
        Quota("connection_requests", lasting=False),
        Quota("io_thread_bytes", lasting=False),
    ),
    _USAGE,
    "limiter_stats",
)
