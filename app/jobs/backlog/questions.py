"""Questions of the job: which quota is near, what expires, and lag and losses of Kafka groups."""

from __future__ import annotations

from app.read.question import ROWS, USUAL, Param, Question

_NEAR_QUOTA = """
WITH ranked AS (
  SELECT *, row_number() OVER (
      PARTITION BY cluster, topic ORDER BY pass_ms DESC, ts_wall_ms DESC, row_no DESC
    ) AS place
  FROM backlog_checks
)
SELECT cluster, topic, greatest(size_usage, time_usage) AS usage,
  CASE WHEN size_usage >= coalesce(time_usage, size_usage) THEN 'size' ELSE 'time' END AS quota,
  backlog_bytes, limit_bytes, nullif(age_s, -1) AS age_s, limit_s, age_state, oldest_subscription,
  exceeded_size OR exceeded_time AS exceeded, epoch_ms(pass_ms) AS checked
FROM ranked
WHERE place = 1 AND (size_usage IS NOT NULL OR time_usage IS NOT NULL)
ORDER BY greatest(size_usage, time_usage) DESC, cluster, topic
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
SELECT cluster, topic, subscription, time_to_expiry_s,
  epoch_ms(pass_ms + CAST(time_to_expiry_s * 1000 AS BIGINT)) AS expire_from,
  expired AS expired_unread, backlog_entries, age_s, epoch_ms(pass_ms) AS checked
FROM ranked
WHERE place = 1 AND (time_to_expiry_s IS NOT NULL OR expired > 0)
ORDER BY ranked.time_to_expiry_s NULLS LAST, cluster, topic, subscription
LIMIT $rows
""".strip()

_BY = Param(
    "by", "a row per partition, topic or group", "partition", ("partition", "topic", "group")
)

# An offset ahead of its log has a lag below 0, which counts as 0 in a sum.
_LAG = """
WITH consumers AS (
  SELECT cluster, "group", state, CAST(count_if(state = 'rebalancing') OVER (
      PARTITION BY cluster, "group" ORDER BY pass_ms RANGE 3600000 PRECEDING) AS INT) AS rebalances
  FROM group_states WHERE topic IS NULL
  QUALIFY row_number() OVER (
    PARTITION BY cluster, "group" ORDER BY pass_ms DESC, ts_wall_ms DESC, row_no DESC
  ) = 1
)
SELECT cluster, "group", CASE WHEN $by <> 'group' THEN topic END AS topic,
  CASE WHEN $by = 'partition' THEN partition END AS partition,
  string_agg(DISTINCT l.state, ', ' ORDER BY l.state) AS state,
  any_value(c.state) FILTER (WHERE c.state <> 'known') AS consumers,
  any_value(c.rebalances) AS rebalances,
  CAST(CASE WHEN $by = 'partition' THEN max(lag) ELSE sum(greatest(lag, 0)) END AS BIGINT) AS lag,
  CAST(CASE WHEN bool_and(lag_records IS NOT NULL) THEN sum(lag_records) END AS BIGINT) AS records,
  max(age_s) AS oldest_s, string_agg(DISTINCT trend, ', ' ORDER BY trend) AS trend,
  sum(lag_growth) AS growth, sum(commit_rate) AS commits,
  min(time_to_loss_s) AS time_to_loss_s, CAST(sum(lost) AS BIGINT) AS lost,
  CASE WHEN $by = 'partition' THEN max(committed) END AS committed,
  CASE WHEN $by = 'partition' THEN max(log_start) END AS log_start,
  CASE WHEN $by = 'partition' THEN max(log_end) END AS log_end, epoch_ms(max(pass_ms)) AS checked,
  CASE WHEN $by = 'partition' THEN max(client_id) END AS client_id,
  CASE WHEN $by = 'partition' THEN max(client_host) END AS client_host,
  epoch_ms(min(answered_ms)) AS answered, any_value(l.group_type) AS type
FROM group_lag_now AS l LEFT JOIN consumers AS c USING (cluster, "group")
GROUP BY ALL
ORDER BY lag DESC NULLS LAST, cluster, "group", topic, partition
LIMIT $rows
""".strip()

# States that are over, and those in which nothing is amiss, are left out.
_STATES = """
SELECT cluster, "group", topic, partition, state, unread, committed, log_start, log_end,
  epoch_ms(pass_ms) AS since, before, transactional_id, producer_id,
  epoch_ms(transaction_start_ms) AS open_since
FROM group_state_spans
WHERE next_ms IS NULL AND state NOT IN ('committed', 'known', 'stable', 'rebalancing', 'empty', 'dead')
  AND pass_ms >= $since AND pass_ms < $until
ORDER BY state = 'gone', unread DESC NULLS LAST, pass_ms DESC, cluster, "group", topic, partition
LIMIT $rows
""".strip()

_LOST = """
SELECT cluster, "group", topic, partition, CAST(sum(offsets) AS BIGINT) AS offsets,
  CAST(coalesce(sum(offsets) FILTER (WHERE first_sight), 0) AS BIGINT) AS at_first_sight,
  min(from_offset) AS from_offset, max(to_offset) AS to_offset,
  epoch_ms(min(ts_wall_ms)) AS first, epoch_ms(max(ts_wall_ms)) AS last
FROM lost_messages
WHERE ts_wall_ms >= $since AND ts_wall_ms < $until
GROUP BY ALL
ORDER BY offsets DESC, cluster, "group", topic, partition
LIMIT $rows
""".strip()

QUESTIONS = (
    Question(
        "backlog-near-quota",
        "Topics by how much of their backlog quota is used, by size or age, at their newest check;"
        " with age_state no_estimate preciseTimeBasedBacklogQuotaCheck=true in broker.conf gives"
        " the age.",
        ("backlog_checks",),
        _NEAR_QUOTA,
        (ROWS,),
        first=(
            "cluster",
            "topic",
            "usage",
            "quota",
            "backlog_bytes",
            "age_s",
            "oldest_subscription",
            "exceeded",
        ),
    ),
    Question(
        "expiring-messages",
        "Subscriptions whose messages expire unread by the TTL, the soonest"
        " first, and how many have.",
        ("backlog_subscriptions",),
        _EXPIRING,
        (ROWS,),
    ),
    Question(
        "lag",
        "Kafka: lag of every group and partition at its newest check, the largest first; and"
        " whether the group has consumers.",
        ("group_lag_now", "group_states"),
        _LAG,
        (_BY, ROWS),
        needs="a row needs a poll of source.format kafka_groups and a check after it: at most"
        " backlogQuotaCheckIntervalInSeconds and idle_advance_ms later",
        place=3,
        usual=True,
        units={"growth": "per_s", "commits": "per_s"},
        first=(
            "cluster",
            "group",
            "topic",
            "partition",
            "state",
            "lag",
            "oldest_s",
            "time_to_loss_s",
        ),
    ),
    Question(
        "group-states",
        "Kafka: groups ahead of their log, before an open transaction and whose, without an"
        " offset, expired, unknown or gone, and since when.",
        ("group_states",),
        _STATES,
        USUAL,
        needs="a row needs a group that is ahead of its log, before an open transaction, without"
        " an offset, unknown or gone",
        place=3,
        first=(
            "cluster",
            "group",
            "topic",
            "partition",
            "state",
            "unread",
            "since",
            "transactional_id",
        ),
    ),
    Question(
        "group-losses",
        "Kafka: records that were deleted before a group read them.",
        ("lost_messages",),
        _LOST,
        USUAL,
        needs="a row needs records that retention or DeleteRecords removed before a group read"
        " them",
        place=3,
        usual=True,
        first=(
            "cluster",
            "group",
            "topic",
            "partition",
            "offsets",
            "from_offset",
            "to_offset",
            "last",
        ),
    ),
)
