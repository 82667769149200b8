"""The view over `group_lag`: Kafka groups as they are now."""

from __future__ import annotations

# The newest row of a group in a partition, unless it is its last one. `group` is a keyword: only
# behind a dot or as an alias may it be called so. A trend needs the rates of three checks.
GROUP_LAG_NOW = """
WITH ranked AS (
  SELECT l.*, row_number() OVER (
      PARTITION BY l.cluster, l.group, l.topic, l.partition
      ORDER BY l.pass_ms DESC, l.ts_wall_ms DESC, l.row_no DESC
    ) AS place
  FROM group_lag AS l
), lost AS (
  SELECT m.cluster, m.group AS reader, m.topic, m.partition, sum(m.offsets) AS offsets
  FROM lost_messages AS m GROUP BY m.cluster, m.group, m.topic, m.partition
)
SELECT r.cluster, r.group AS group, r.topic, r.partition, r.pass_ms, r.state, r.committed,
  r.log_start, r.log_end, r.lag, r.lag_records, r.lag_bytes, r.age_s, r.age_state,
  r.oldest_timestamp_ms, r.limit_s, r.limit_bytes, r.time_usage, r.size_usage,
  CASE WHEN r.lag > 0 AND r.lag_growth IS NOT NULL THEN
    CASE WHEN coalesce(r.lag_records, 1) = 0 THEN 'nothing unread'
      WHEN r.commit_rate = 0 THEN 'stands still' WHEN r.lag_growth > 0 THEN 'falls behind'
      WHEN r.lag_growth < 0 THEN 'catches up' ELSE 'keeps up' END END AS trend,
  r.lag_growth, r.commit_rate, r.time_to_drain_s, r.time_to_loss_s,
  CAST(coalesce(d.offsets, 0) AS BIGINT) AS lost
FROM ranked AS r
LEFT JOIN lost AS d ON d.cluster = r.cluster AND d.reader = r.group AND d.topic = r.topic
  AND d.partition = r.partition
WHERE r.place = 1 AND r.state NOT IN ('gone', 'offsets_expired')
""".strip()
