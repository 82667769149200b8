"""Quotas of the job: size and age of each topic's backlog, and what reaches a limit next."""

from __future__ import annotations

from app.tables.view import JobQuotas, Quota

# A check is a moment, so its window has no length. An age of -1 is none.
_USAGE = """
SELECT CASE n.name WHEN 'size' THEN 'backlog_size' ELSE 'backlog_age' END, c.cluster, c.broker,
  c.topic, CAST(CASE n.name WHEN 'size' THEN c.limit_bytes ELSE c.limit_s END AS DOUBLE),
  CAST(CASE WHEN n.name = 'size' THEN c.backlog_bytes WHEN c.age_s >= 0 THEN c.age_s END AS DOUBLE),
  CAST(CASE WHEN n.name = 'size' THEN c.backlog_bytes WHEN c.age_s >= 0 THEN c.age_s END AS DOUBLE),
  coalesce(CASE n.name WHEN 'size' THEN c.exceeded_size ELSE c.exceeded_time END, false),
  c.pass_ms, CAST(0 AS BIGINT)
FROM backlog_checks AS c CROSS JOIN (VALUES ('size'), ('time')) AS n(name)
WHERE CASE n.name WHEN 'size' THEN c.limit_bytes ELSE c.limit_s END IS NOT NULL
""".strip()

# The time that is left is that of the nearer limit: of the age if it is what the age lacks. What is
# deleted has no newer check: a day later it is left out, as is what was not answered since then.
# A check knows of Kafka what the last answer said; the time that is left counts from there.
_GROWING = """
SELECT what || CASE WHEN of_age THEN '_age' ELSE '_size' END, cluster, topic, partition, reader,
  CASE WHEN of_age THEN limit_s ELSE limit_bytes END,
  CASE WHEN of_age THEN age_s ELSE size END,
  CASE WHEN left_s > 0 THEN left_s + (pass_ms - known_ms) / 1000 ELSE left_s END, known_ms
FROM (
  SELECT *, NOT CASE WHEN left_s > 0 THEN left_s IS DISTINCT FROM limit_s - age_s
    ELSE coalesce(size >= limit_bytes, false) END AS of_age
  FROM (
    SELECT 'backlog' AS what, s.cluster, s.topic, CAST(NULL AS INTEGER) AS partition,
      s.subscription AS reader, s.pass_ms, s.time_to_quota_s AS left_s, s.backlog_bytes AS size,
      c.limit_bytes, s.age_s, c.limit_s, s.pass_ms AS known_ms
    FROM (
      SELECT * FROM backlog_subscriptions WHERE pass_ms >= $since AND pass_ms < $until
      QUALIFY row_number() OVER (
        PARTITION BY cluster, topic, subscription
        ORDER BY pass_ms DESC, ts_wall_ms DESC, row_no DESC
      ) = 1
    ) AS s ASOF LEFT JOIN backlog_checks AS c
      ON c.cluster = s.cluster AND c.topic = s.topic AND c.pass_ms <= s.pass_ms
    UNION ALL
    SELECT 'retention', cluster, topic, partition, "group", pass_ms, time_to_loss_s, lag_bytes,
      limit_bytes, age_s, limit_s, coalesce(answered_ms, pass_ms)
    FROM (
      SELECT * FROM group_lag WHERE pass_ms >= $since AND pass_ms < $until
      QUALIFY row_number() OVER (
        PARTITION BY cluster, "group", topic, partition
        ORDER BY pass_ms DESC, ts_wall_ms DESC, row_no DESC
      ) = 1
    ) WHERE state NOT IN ('gone', 'offsets_expired')
  )
  QUALIFY known_ms > max(pass_ms) OVER (PARTITION BY cluster) - 86400000
)
WHERE left_s < 1e9
""".strip()

QUOTAS = JobQuotas(
    (Quota("backlog_size", of_topic=True), Quota("backlog_age", of_topic=True)),
    _USAGE,
    "backlog_checks",
    growing=_GROWING,
    growing_reads=("backlog_subscriptions", "backlog_checks", "group_lag"),
)
