"""The views over the tables of `backlog`: upstream's stats fields and metrics."""

from __future__ import annotations

# Ages are taken at the newest check of the table with age_reading = live. The remainder is taken
# off before the division, since engines round a cast differently.
TOPIC_STATS = """
WITH ranked AS (
  SELECT c.*, regexp_replace(topic, '-partition-[0-9]+$', '') AS base,
    row_number() OVER (
      PARTITION BY cluster, topic ORDER BY pass_ms DESC, ts_wall_ms DESC, row_no DESC
    ) AS place,
    max(pass_ms) OVER () AS newest_ms
  FROM backlog_checks AS c
), latest AS (
  SELECT cluster, topic, base, pass_ms, oldest_timestamp_ms,
    CASE WHEN base = topic THEN CAST(-1 AS BIGINT)
      ELSE CAST(regexp_extract(topic, '-partition-([0-9]+)$', 1) AS BIGINT) END AS number,
    coalesce(limit_bytes, -1) AS limit_bytes, coalesce(limit_s, -1) AS limit_s,
    CASE WHEN switches['age_reading'] = 'live' AND oldest_timestamp_ms IS NOT NULL
      THEN CAST((newest_ms - oldest_timestamp_ms - (newest_ms - oldest_timestamp_ms) % 1000) / 1000
        AS BIGINT) ELSE age_s END AS age_s,
    oldest_subscription
  FROM ranked WHERE place = 1
), partitions AS (
  SELECT *,
    row_number() OVER (PARTITION BY cluster, base ORDER BY pass_ms DESC, number) AS by_check,
    row_number() OVER (
      PARTITION BY cluster, base
      ORDER BY CASE WHEN oldest_timestamp_ms IS NULL THEN 1 ELSE 0 END, age_s DESC, number
    ) AS by_age
  FROM latest WHERE base <> topic
)
SELECT cluster, topic, pass_ms, limit_bytes AS backlogQuotaLimitSize,
  limit_s AS backlogQuotaLimitTime, age_s AS oldestBacklogMessageAgeSeconds,
  oldest_subscription AS oldestBacklogMessageSubscriptionName
FROM latest
UNION ALL
SELECT l.cluster, l.base, l.pass_ms, l.limit_bytes, l.limit_s, a.age_s,
  CASE WHEN a.oldest_timestamp_ms IS NULL THEN NULL ELSE a.oldest_subscription END
FROM partitions AS l
JOIN partitions AS a ON a.cluster = l.cluster AND a.base = l.base AND a.by_age = 1
WHERE l.by_check = 1
""".strip()

# Evictions are counted since the tables begin. The metric of the duration of a check is not here:
# it is that of the exporter's own pass. The topic-level age and counts of evictions are left out of
# namespaces, whose sums would mean nothing.
NAMESPACE = (
    "CASE WHEN topic LIKE '%://%' THEN regexp_replace("
    "regexp_replace(topic, '^[a-z-]+://', ''), '/[^/]*$', '') END"
)
METRICS = """
WITH stats AS (
  SELECT cluster, topic, backlogQuotaLimitSize AS limit_bytes, backlogQuotaLimitTime AS limit_s,
    oldestBacklogMessageAgeSeconds AS age_s
  FROM ({topic_stats}) AS s
), sizes AS (
  SELECT cluster, topic, backlog_bytes FROM (
    SELECT c.*, row_number() OVER (
        PARTITION BY cluster, topic ORDER BY pass_ms DESC, ts_wall_ms DESC, row_no DESC
      ) AS place
    FROM backlog_checks AS c
  ) AS r WHERE place = 1
), topics AS (
  SELECT s.cluster, s.topic, z.backlog_bytes, s.limit_bytes, s.limit_s, s.age_s
  FROM stats AS s JOIN sizes AS z ON z.cluster = s.cluster AND z.topic = s.topic
), evictions AS (
  SELECT cluster, topic, quota_type, sum(count_delta) AS evictions
  FROM backlog_evictions GROUP BY cluster, topic, quota_type
)
SELECT name AS metric, 'gauge' AS kind, cluster,
  {namespace} AS namespace, topic,
  CAST(NULL AS STRING) AS quota_type,
  CAST(CASE name WHEN 'pulsar_storage_backlog_size' THEN backlog_bytes
    WHEN 'pulsar_storage_backlog_quota_limit' THEN limit_bytes
    WHEN 'pulsar_storage_backlog_quota_limit_time' THEN limit_s ELSE age_s END AS BIGINT) AS value
FROM topics
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
""".strip().replace("{topic_stats}", TOPIC_STATS).replace("{namespace}", NAMESPACE)
