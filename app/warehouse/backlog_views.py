"""The views over the tables of `backlog`: upstream's stats fields and metrics."""

from __future__ import annotations

# The last check of every topic. Ages are taken at the newest check of the table with
# age_reading = live. The remainder is taken off before the division, since engines round a cast
# differently. A topic that has no partition's ending is its own partition, with the number -1.
_LATEST = """
WITH ranked AS (
  SELECT c.*, regexp_replace(topic, '-partition-[0-9]+$', '') AS base,
    row_number() OVER (
      PARTITION BY cluster, topic ORDER BY pass_ms DESC, ts_wall_ms DESC, row_no DESC
    ) AS place,
    max(pass_ms) OVER () AS newest_ms
  FROM backlog_checks AS c
), latest AS (
  SELECT cluster, topic, base, pass_ms, backlog_bytes, oldest_timestamp_ms,
    CASE WHEN base = topic THEN CAST(-1 AS BIGINT)
      ELSE CAST(regexp_extract(topic, '-partition-([0-9]+)$', 1) AS BIGINT) END AS number,
    coalesce(limit_bytes, -1) AS limit_bytes, coalesce(limit_s, -1) AS limit_s,
    CASE WHEN switches['age_reading'] = 'live' AND oldest_timestamp_ms IS NOT NULL
      THEN CAST((newest_ms - oldest_timestamp_ms - (newest_ms - oldest_timestamp_ms) % 1000) / 1000
        AS BIGINT) ELSE age_s END AS age_s,
    oldest_subscription
  FROM ranked WHERE place = 1
)
""".strip()

# A partition has a row of its own, and is part of the row of its topic.
TOPIC_STATS = (
    _LATEST
    + """, members AS (
  SELECT *,
    row_number() OVER (PARTITION BY cluster, base ORDER BY pass_ms DESC, number) AS by_check,
    row_number() OVER (
      PARTITION BY cluster, base
      ORDER BY CASE WHEN oldest_timestamp_ms IS NULL THEN 1 ELSE 0 END, age_s DESC, number
    ) AS by_age
  FROM latest
)
SELECT cluster, topic, pass_ms, limit_bytes AS backlogQuotaLimitSize,
  limit_s AS backlogQuotaLimitTime, age_s AS oldestBacklogMessageAgeSeconds,
  oldest_subscription AS oldestBacklogMessageSubscriptionName
FROM latest WHERE base <> topic
UNION ALL
SELECT l.cluster, l.base, l.pass_ms, l.limit_bytes, l.limit_s, a.age_s,
  CASE WHEN a.oldest_timestamp_ms IS NULL THEN NULL ELSE a.oldest_subscription END
FROM members AS l
JOIN members AS a ON a.cluster = l.cluster AND a.base = l.base AND a.by_age = 1
WHERE l.by_check = 1
""".rstrip()
)

# Evictions are counted since the tables begin, from 0 on, so that an increase over the first one is
# seen. The metric of the duration of a check is not here:
# it is that of the exporter's own pass. Of a namespace there are counts, but no age: a sum of ages
# means nothing.
NAMESPACE = (
    "CASE WHEN topic LIKE '%://%' THEN regexp_replace("
    "regexp_replace(topic, '^[a-z-]+://', ''), '/[^/]*$', '') END"
)
METRICS = (
    _LATEST
    + """, evictions AS (
  SELECT cluster, topic, quota_type, sum(count_delta) AS evictions FROM (
    SELECT cluster, topic, quota_type, CAST(count_delta AS BIGINT) AS count_delta
    FROM backlog_evictions
    UNION ALL
    SELECT cluster, topic, name, CAST(0 AS BIGINT)
    FROM latest CROSS JOIN (VALUES ('size'), ('time')) AS types(name)
  ) GROUP BY cluster, topic, quota_type
)
SELECT name AS metric, 'gauge' AS kind, cluster,
  {namespace} AS namespace, topic,
  CAST(NULL AS STRING) AS quota_type,
  CAST(CASE name WHEN 'pulsar_storage_backlog_size' THEN backlog_bytes
    WHEN 'pulsar_storage_backlog_quota_limit' THEN limit_bytes
    WHEN 'pulsar_storage_backlog_quota_limit_time' THEN limit_s ELSE age_s END AS BIGINT) AS value
FROM latest
CROSS JOIN (VALUES ('pulsar_storage_backlog_size'), ('pulsar_storage_backlog_quota_limit'),
  ('pulsar_storage_backlog_quota_limit_time'), ('pulsar_storage_backlog_age_seconds'))
  AS names(name)
UNION ALL
SELECT 'pulsar_storage_backlog_quota_exceeded_evictions_total', 'counter', cluster,
  {namespace}, topic, quota_type,
  CAST(evictions AS BIGINT)
FROM evictions
UNION ALL
SELECT 'pulsar_storage_backlog_quota_exceeded_evictions_total', 'counter', cluster,
  {namespace}, NULL, quota_type,
  CAST(sum(evictions) AS BIGINT)
FROM evictions
GROUP BY cluster, {namespace},
  quota_type
UNION ALL
SELECT 'pulsar_broker_storage_backlog_quota_exceeded_evictions_total', 'counter', cluster,
  NULL, NULL, quota_type, CAST(sum(evictions) AS BIGINT)
FROM evictions GROUP BY cluster, quota_type
""".rstrip().replace("{namespace}", NAMESPACE)
)
