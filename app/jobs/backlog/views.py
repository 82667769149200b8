"""Views of the job: topics and Kafka groups as they are now, and Pulsar's own metrics."""

from __future__ import annotations

from app.read.spelling import NAMESPACE
from app.tables.view import View

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
      ELSE TRY_CAST(regexp_extract(topic, '-partition-([0-9]+)$', 1) AS BIGINT) END AS number,
    coalesce(limit_bytes, -1) AS limit_bytes, coalesce(limit_s, -1) AS limit_s,
    CASE WHEN switches['age_reading'] = 'live' AND oldest_timestamp_ms IS NOT NULL
      THEN CAST((newest_ms - oldest_timestamp_ms - (newest_ms - oldest_timestamp_ms) % 1000) / 1000
        AS BIGINT) ELSE age_s END AS age_s,
    oldest_subscription
  FROM ranked WHERE place = 1
)
""".strip()

# A partition has a row of its own, and is part of the row of its topic.
_TOPIC_STATS = (
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
_METRICS = (
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

# The newest row of a group in a partition, unless it is its last one. `group` is a keyword: only
# behind a dot or as an alias may it be called so. A trend needs the rates of three checks.
_GROUP_LAG_NOW = """
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
  CASE WHEN r.lag > 0 AND r.client_host = '' AND coalesce(r.commit_rate, 0) = 0
      AND coalesce(r.lag_records, 1) > 0 THEN 'has no member'
    WHEN r.lag > 0 AND r.lag_growth IS NOT NULL THEN
    CASE WHEN coalesce(r.lag_records, 1) = 0 THEN 'nothing unread'
      WHEN r.commit_rate = 0 THEN 'stands still' WHEN r.lag_growth > 0 THEN 'falls behind'
      WHEN r.lag_growth < 0 THEN 'catches up' ELSE 'keeps up' END END AS trend,
  r.lag_growth, r.commit_rate, r.time_to_drain_s, r.time_to_loss_s, r.client_id, r.client_host,
  r.answered_ms, r.group_type,
  CAST(coalesce(d.offsets, 0) AS BIGINT) AS lost
FROM ranked AS r
LEFT JOIN lost AS d ON d.cluster = r.cluster AND d.reader = r.group AND d.topic = r.topic
  AND d.partition = r.partition
WHERE r.place = 1 AND r.state NOT IN ('gone', 'offsets_expired')
""".strip()

# Checks with the time of the next one of the same partition; null: there is none.
_CHECKS = """
SELECT l.*, lead(l.pass_ms) OVER (
    PARTITION BY l.cluster, l.group, l.topic, l.partition
    ORDER BY l.pass_ms, l.ts_wall_ms, l.row_no
  ) AS next_ms
FROM group_lag AS l
""".strip()

METRICS = View(
    "backlog_metrics",
    "Sizes, ages, limits and evictions of backlogs under the names of Pulsar's own metrics."
    " With age_reading = live an age has grown since its check.",
    _METRICS,
    reads=("backlog_checks", "backlog_evictions"),
    place=1,
)
VIEWS = (
    View(
        "backlog_topic_stats",
        "The newest check of every topic, and of every partitioned topic as a whole, under the"
        " names of the broker's topic stats. With age_reading = live the age has grown since the"
        " check.",
        _TOPIC_STATS,
        reads=("backlog_checks",),
        place=1,
    ),
    METRICS,
    View(
        "backlog_quota_predictions",
        "The checks at which a subscription was expected to bring its topic to a backlog quota within an"
        " hour, while the topic was over none; `next_ms` is the check after it, `newest_ms` the"
        " newest one of the topic, `usage` the use of the fuller quota.",
        """
SELECT n.cluster, n.topic, n.subscription, n.pass_ms, n.time_to_quota_s, n.age_s, n.remarks, n.usage,
  n.next_ms, n.newest_ms
FROM (
  SELECT s.cluster, s.topic, s.subscription, s.pass_ms, s.time_to_quota_s, s.age_s, s.remarks,
    m.newest_ms,
    coalesce(greatest(c.size_usage, c.time_usage), 0) AS usage,
    coalesce(c.exceeded_size OR c.exceeded_time, false) AS is_over, lead(s.pass_ms) OVER (
      PARTITION BY s.cluster, s.topic, s.subscription ORDER BY s.pass_ms
    ) AS next_ms
  FROM backlog_subscriptions AS s LEFT JOIN backlog_checks AS c
    ON c.cluster = s.cluster AND c.topic = s.topic AND c.pass_ms = s.pass_ms
  LEFT JOIN (
    SELECT cluster, topic, max(pass_ms) AS newest_ms FROM backlog_checks GROUP BY cluster, topic
  ) AS m ON m.cluster = s.cluster AND m.topic = s.topic
) AS n WHERE n.time_to_quota_s > 0 AND n.time_to_quota_s < 3600 AND NOT n.is_over
""".strip(),
        reads=("backlog_subscriptions", "backlog_checks"),
        place=1,
    ),
    View(
        "group_lag_now",
        "Kafka: the newest check of every group and partition that is not gone, with its trend"
        " and the offsets that it lost.",
        _GROUP_LAG_NOW,
        reads=("group_lag", "lost_messages"),
        place=1,
    ),
    View(
        "group_near_retention",
        # Neither a transaction marker nor an emptied log has a timestamp that was read.
        "Kafka: the checks of a group and partition at which the oldest unread record was 80 % of its"
        " retention old, by a timestamp that was read; `next_ms` is the check after it.",
        f"""
SELECT n.cluster, n.group AS group, n.topic, n.partition, n.pass_ms, n.age_s, n.limit_s, n.time_usage,
  n.age_state, n.next_ms
FROM ({_CHECKS}) AS n WHERE n.age_state = 'known' AND n.time_usage >= 0.8
""".strip(),
        reads=("group_lag",),
        place=1,
    ),
    View(
        "group_ahead",
        "Kafka: the checks of a group and partition at which its offset is beyond the end of the log;"
        " `next_ms` is the check after it.",
        f"""
SELECT n.cluster, n.group AS group, n.topic, n.partition, n.pass_ms, n.state, n.lag, n.committed,
  n.log_end, n.next_ms
FROM ({_CHECKS}) AS n WHERE n.state = 'ahead'
""".strip(),
        reads=("group_lag",),
        place=1,
    ),
    View(
        "group_state_spans",
        "Kafka: the states of `group_states` with the time of the next one; null: it lasts.",
        """
SELECT s.cluster, s.broker, s.ts_wall_ms, s.row_no, s.group AS group, s.topic, s.partition,
  s.pass_ms, s.state, s.before, s.committed, s.log_start, s.log_end, s.unread, s.transactional_id,
  s.producer_id, s.transaction_start_ms, s.group_type, s.group_epoch, s.assignment_epoch,
  lead(s.pass_ms) OVER (
    PARTITION BY s.cluster, s.group, s.topic, s.partition
    ORDER BY s.pass_ms, s.ts_wall_ms, s.row_no
  ) AS next_ms
FROM group_states AS s
""".strip(),
        reads=("group_states",),
        place=1,
    ),
)
