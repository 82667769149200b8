"""Questions about the job `backlog`: which quota is near, and when it will be reached."""

from __future__ import annotations

from app.warehouse.questions.question import ROWS, Question

_NEAR_QUOTA = """
WITH ranked AS (
  SELECT *, row_number() OVER (
      PARTITION BY cluster, topic ORDER BY pass_ms DESC, ts_wall_ms DESC, row_no DESC
    ) AS place
  FROM backlog_checks
)
SELECT cluster, topic, round(greatest(size_usage, time_usage), 4) AS usage,
  CASE WHEN size_usage >= coalesce(time_usage, size_usage) THEN 'size' ELSE 'time' END AS quota,
  backlog_bytes, limit_bytes, age_s, limit_s, oldest_subscription,
  exceeded_size OR exceeded_time AS exceeded, epoch_ms(pass_ms) AS checked
FROM ranked
WHERE place = 1 AND (size_usage IS NOT NULL OR time_usage IS NOT NULL)
ORDER BY greatest(size_usage, time_usage) DESC, cluster, topic
LIMIT $rows
""".strip()

_PREDICTED = """
WITH ranked AS (
  SELECT *, row_number() OVER (
      PARTITION BY cluster, topic, subscription
      ORDER BY pass_ms DESC, ts_wall_ms DESC, row_no DESC
    ) AS place
  FROM backlog_subscriptions
), predicted AS (
  SELECT cluster, topic, CAST(NULL AS INTEGER) AS partition, subscription AS reader,
    time_to_quota_s AS left_s, backlog_bytes, age_s, growth_rate, drain_rate, pass_ms
  FROM ranked WHERE place = 1
  UNION ALL
  SELECT cluster, topic, partition, "group", time_to_loss_s, lag_bytes, age_s,
    CAST(NULL AS DOUBLE), commit_rate, pass_ms
  FROM group_lag_now
)
SELECT cluster, topic, partition, reader AS group_or_subscription,
  round(left_s, 1) AS time_to_quota_s,
  epoch_ms(pass_ms + CAST(left_s * 1000 AS BIGINT)) AS expected,
  backlog_bytes, age_s, growth_rate, drain_rate, epoch_ms(pass_ms) AS checked
FROM predicted
WHERE left_s < 1e9
ORDER BY left_s, cluster, topic, partition, reader
LIMIT $rows
""".strip()

_EXPIRING = """
WITH ranked AS (
  SELECT *, row_number() OVER (
      PARTITION BY cluster, topic, subscription
      ORDER BY pass_ms DESC, ts_wall_ms DESC, row_no DESC
    ) AS place,
    sum(expired_unread) OVER (PARTITION BY cluster, topic, subscription) AS expired
  FROM backlog_subscriptions
)
SELECT cluster, topic, subscription, round(time_to_expiry_s, 1) AS time_to_expiry_s,
  epoch_ms(pass_ms + CAST(time_to_expiry_s * 1000 AS BIGINT)) AS expire_from,
  expired AS expired_unread, backlog_entries, age_s, epoch_ms(pass_ms) AS checked
FROM ranked
WHERE place = 1 AND (time_to_expiry_s IS NOT NULL OR expired > 0)
ORDER BY ranked.time_to_expiry_s NULLS LAST, cluster, topic, subscription
LIMIT $rows
""".strip()

QUESTIONS = (
    Question(
        "backlog-near-quota",
        "Topics by how much of their backlog quota is used, by size or age, at their newest check.",
        ("backlog_checks",),
        _NEAR_QUOTA,
        (ROWS,),
    ),
    Question(
        "predicted-breaches",
        "Subscriptions whose backlog will reach a quota, and Kafka groups"
        " whose unread records will be deleted, the soonest first; 0 s = now.",
        ("backlog_subscriptions", "group_lag_now"),
        _PREDICTED,
        (ROWS,),
        needs="a row needs unread messages and a limit: a limit of age from the first check of a"
        " Kafka group and the third of a subscription on, one of size from the third check"
        " on",
    ),
    Question(
        "expiring-messages",
        "Subscriptions whose messages expire unread by the TTL, the soonest"
        " first, and how many have.",
        ("backlog_subscriptions",),
        _EXPIRING,
        (ROWS,),
    ),
)
