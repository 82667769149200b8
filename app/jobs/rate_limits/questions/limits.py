"""Questions of the job: shared limits, limits that are near, and those that were breached."""

from __future__ import annotations

from app.read.question import Question

# A pause belongs to the limit that began it. Who shares a limit: the topics of the group, all topics
# of a broker, else those on the connections. What they used is counted in messages or bytes, by the
# balance that was used up, over the windows in which the limit acted.
_SHARED_LIMITS = """
WITH begun AS MATERIALIZED (
  SELECT cluster, broker, limiter, limiter_name AS name, topics, start_ms, paused_ns,
    by_messages
  FROM throttle_intervals
  WHERE limiter <> 'topic' AND (start_ms IS NULL OR (start_ms >= $since AND start_ms < $until))
), limits AS (
  SELECT cluster, broker, limiter, name, count(*) AS pauses,
    sum(paused_ns) / 1e9 AS paused_s,
    len(list_distinct(flatten(list(topics)))) AS topics,
    bool_or(by_messages) AS by_messages,
    epoch_ms(min(start_ms)) AS first_pause, epoch_ms(max(start_ms)) AS last_pause
  FROM begun GROUP BY cluster, broker, limiter, name
), members AS (
  SELECT DISTINCT cluster, broker, limiter, name, unnest(topics) AS topic
  FROM begun WHERE limiter NOT IN ('broker', 'resource_group')
), used AS (
  SELECT l.cluster, l.broker, l.limiter, l.name, s.topic,
    sum(CASE WHEN l.by_messages THEN s.messages ELSE s.bytes END) AS amount
  FROM limits AS l JOIN topic_throttle_stats AS s ON s.cluster = l.cluster AND s.broker = l.broker
  WHERE EXISTS (
      FROM begun AS b WHERE b.cluster = l.cluster AND b.broker = l.broker
        AND b.limiter = l.limiter AND b.name IS NOT DISTINCT FROM l.name
        AND b.start_ms >= s.window_start_ms AND b.start_ms < s.window_start_ms + s.window_ms)
    AND (l.limiter = 'broker' OR (l.limiter = 'resource_group' AND s.resource_group = l.name)
      OR EXISTS (
      FROM members AS m WHERE m.cluster = l.cluster AND m.broker = l.broker
        AND m.limiter = l.limiter AND m.name IS NOT DISTINCT FROM l.name AND m.topic = s.topic))
  GROUP BY l.cluster, l.broker, l.limiter, l.name, s.topic
), most AS (
  SELECT cluster, broker, limiter, name, arg_min(topic, (-amount, topic)) AS most_used_by,
    max(amount) / nullif(sum(amount), 0) AS share
  FROM used GROUP BY cluster, broker, limiter, name
)
SELECT l.cluster, l.broker, l.limiter, l.name AS limiter_name, l.pauses, l.paused_s, l.topics,
  m.most_used_by, m.share, CASE WHEN l.by_messages THEN 'messages' ELSE 'bytes' END AS used,
  l.first_pause, l.last_pause
FROM limits AS l
LEFT JOIN most AS m
  ON m.cluster = l.cluster AND m.broker = l.broker AND m.limiter = l.limiter
  AND m.name IS NOT DISTINCT FROM l.name
ORDER BY l.paused_s DESC NULLS LAST, l.pauses DESC, l.cluster, l.broker, l.limiter, l.name
LIMIT $rows
""".strip()

# As `peak` of quota_usage: what a bucket lacked of full at its lowest balance was used in a second.
_NEAR_LIMIT = """
WITH used AS (
  SELECT *, coalesce(greatest((limit_msgs - min_balance_msgs) / limit_msgs,
    (limit_bytes - min_balance_bytes) / limit_bytes), utilisation) AS peak
  FROM limiter_stats WHERE window_start_ms >= $since AND window_start_ms < $until
)
SELECT cluster, broker, limiter, limiter_name, max(peak) AS highest_utilisation,
  epoch_ms(arg_max(window_start_ms, peak)) AS in_window,
  arg_max(peak, window_start_ms) AS newest_utilisation,
  CAST(sum(throttles) AS BIGINT) AS throttles
FROM used WHERE peak IS NOT NULL
GROUP BY cluster, broker, limiter, limiter_name
ORDER BY max(peak) DESC, throttles DESC, cluster, broker, limiter, limiter_name
LIMIT $rows
""".strip()

_THROTTLE_COMMANDS = """
SELECT cluster, topic, coalesce(producer_name, concat(cnx_id, '/', producer_id)) AS producer,
  count(request_id) FILTER (WHERE exception IS NULL) AS commands,
  count(*) FILTER (WHERE rule = 'client_unsupported') AS unsupported,
  coalesce(sum(pause_ms) FILTER (WHERE exception IS NULL), 0) / 1e3 AS announced_s,
  count(*) FILTER (WHERE exception IS NOT NULL) AS timed_out_sends,
  coalesce(list_sort(list(DISTINCT reason) FILTER (WHERE reason IS NOT NULL)), []) AS reasons,
  epoch_ms(max(ts_wall_ms)) AS newest
FROM producer_throttle
WHERE ts_wall_ms >= $since AND ts_wall_ms < $until
GROUP BY cluster, topic, producer
ORDER BY announced_s DESC, commands DESC, unsupported DESC, cluster, topic, producer
LIMIT $rows
""".strip()

_BREACHED = """
SELECT cluster, broker, kind, entity, count(*) AS breaches, max(peak) AS highest_ratio,
  arg_max("limit", window_start_ms) AS newest_limit, arg_max(used, window_start_ms) AS newest_used,
  epoch_ms(min(window_start_ms)) AS first_window, epoch_ms(max(window_start_ms)) AS last_window
FROM quota_usage
WHERE breached AND window_start_ms >= $since AND window_start_ms < $until
GROUP BY cluster, broker, kind, entity
ORDER BY breaches DESC, highest_ratio DESC NULLS LAST, cluster, broker, kind, entity
LIMIT $rows
""".strip()

QUESTIONS = (
    Question(
        "shared-limits",
        "Limits that topics share (of a group, a broker, a connection or an IO"
        " thread) by the pauses that they began, with the topic that used most of each.",
        ("throttle_events", "topic_throttle_stats"),
        _SHARED_LIMITS,
    ),
    Question(
        "near-limit",
        "Limiters by how near they came to their limit: the highest and the newest"
        " use, of a publish rate within a second of the window.",
        ("limiter_stats",),
        _NEAR_LIMIT,
        usual=True,
    ),
    Question(
        "throttle-commands",
        "Throttle commands by producer (protocol=pip385):"
        " commands, marks without one because the client does not support it, announced time, sends"
        " that timed out.",
        ("producer_throttle",),
        _THROTTLE_COMMANDS,
        needs="a run of rate_limits with protocol: pip385 and a receipt_model writes them",
    ),
    Question(
        "breached-quotas",
        "Every quota of every job that was breached: in how many windows, and"
        " by how much at worst.",
        ("quota_usage",),
        _BREACHED,
        usual=True,
        units={"newest_limit": "kind", "newest_used": "kind"},
    ),
)
