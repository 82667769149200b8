"""Questions about the job `rate_limits`: who was throttled, by whom, for how long."""

from __future__ import annotations

from app.queries.question import USUAL, Param, Question

_TOP_OFFENDERS = """
SELECT cluster, topic, CAST(sum(culprit_times) AS BIGINT) AS broke_its_limit,
  round(sum(culprit_ns) / 1e9, 3) AS paused_s,
  epoch_ms(min(window_start_ms)) AS first_window, epoch_ms(max(window_start_ms)) AS last_window
FROM topic_throttle_stats
WHERE window_start_ms >= $since AND window_start_ms < $until
  AND (culprit_times > 0 OR culprit_ns > 0)
GROUP BY cluster, topic
ORDER BY sum(culprit_ns) DESC, broke_its_limit DESC, cluster, topic
LIMIT $rows
""".strip()

_TOP_VICTIMS = """
SELECT cluster, topic, CAST(sum(collateral_times) AS BIGINT) AS paused_by_others,
  round(sum(collateral_ns) / 1e9, 3) AS paused_s,
  CAST(sum(culprit_times) AS BIGINT) AS broke_its_limit,
  epoch_ms(min(window_start_ms)) AS first_window, epoch_ms(max(window_start_ms)) AS last_window
FROM topic_throttle_stats
WHERE window_start_ms >= $since AND window_start_ms < $until
  AND (collateral_times > 0 OR collateral_ns > 0)
GROUP BY cluster, topic
ORDER BY sum(collateral_ns) DESC, paused_by_others DESC, cluster, topic
LIMIT $rows
""".strip()

# A Kafka topic has neither: its rows come under null. In names of four parts the namespace has
# three: tenant, cluster and namespace.
_THROTTLE_TIME = """
WITH named AS (
  SELECT *, nullif(CASE WHEN $by = 'tenant' THEN regexp_extract(topic, '^[a-z-]+://([^/]+)/', 1)
    ELSE regexp_extract(topic, '^[a-z-]+://(.+)/[^/]+$', 1) END, '') AS name
  FROM topic_throttle_stats
  WHERE window_start_ms >= $since AND window_start_ms < $until
)
SELECT cluster, name, count(DISTINCT topic) AS topics,
  CAST(sum(limited_times) AS BIGINT) AS pauses,
  round(sum(culprit_ns) / 1e9, 3) AS own_fault_s,
  round(sum(collateral_ns) / 1e9, 3) AS fault_of_others_s
FROM named
GROUP BY cluster, name
HAVING sum(limited_times) > 0 OR sum(culprit_ns) + sum(collateral_ns) > 0
ORDER BY sum(culprit_ns) + sum(collateral_ns) DESC, cluster, name
LIMIT $rows
""".strip()

# Pauses are numbered as in the view throttle_intervals, but each mark keeps its number, and the
# table is read once. A pause with several culprits counts in full for each of them.
_NOISY_NEIGHBOURS = """
WITH flagged AS (
  SELECT cluster, broker, cnx_id, ts_wall_ms, ts_mono_ns, row_no, action, transition, limiter,
    topic, culprit_topic, collateral_topics, reads_paused,
    coalesce(lag(reads_paused) OVER (
      PARTITION BY cluster, broker, cnx_id
      ORDER BY ts_wall_ms NULLS FIRST, ts_mono_ns NULLS FIRST, row_no
    ), false) AS were_paused
  FROM throttle_events
), numbered AS MATERIALIZED (
  SELECT *, sum(CASE WHEN reads_paused AND NOT were_paused THEN 1 ELSE 0 END) OVER (
      PARTITION BY cluster, broker, cnx_id
      ORDER BY ts_wall_ms NULLS FIRST, ts_mono_ns NULLS FIRST, row_no
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS pause_no
  FROM flagged
), pauses AS (
  SELECT cluster, broker, cnx_id, pause_no,
    min(ts_wall_ms) FILTER (WHERE reads_paused AND NOT were_paused) AS start_ms,
    min(ts_mono_ns) FILTER (WHERE reads_paused AND NOT were_paused) AS start_ns,
    min(ts_mono_ns) FILTER (WHERE were_paused AND NOT reads_paused) AS end_ns
  FROM numbered WHERE pause_no > 0
  GROUP BY cluster, broker, cnx_id, pause_no
), blamed AS (
  SELECT cluster, broker, cnx_id, pause_no, limiter, culprit_topic AS culprit,
    unnest(list_append(collateral_topics, topic)) AS victim
  FROM numbered
  WHERE pause_no > 0 AND action = 'mark' AND transition <> 'Dropped'
    AND culprit_topic IS NOT NULL
), pairs AS (
  SELECT cluster, broker, cnx_id, pause_no, culprit, victim, list(DISTINCT limiter) AS limiters
  FROM blamed WHERE victim <> culprit
  GROUP BY cluster, broker, cnx_id, pause_no, culprit, victim
)
SELECT b.cluster, b.culprit, b.victim, count(*) AS pauses,
  round(sum(p.end_ns - p.start_ns) / 1e9, 3) AS paused_s,
  list_sort(list_distinct(flatten(list(b.limiters)))) AS limiters,
  epoch_ms(min(p.start_ms)) AS first_pause, epoch_ms(max(p.start_ms)) AS last_pause
FROM pairs AS b
JOIN pauses AS p
  ON p.cluster = b.cluster AND p.broker = b.broker AND p.cnx_id = b.cnx_id
  AND p.pause_no = b.pause_no
WHERE p.start_ms IS NULL OR (p.start_ms >= $since AND p.start_ms < $until)
GROUP BY b.cluster, b.culprit, b.victim
ORDER BY paused_s DESC NULLS LAST, pauses DESC, b.cluster, b.culprit, b.victim
LIMIT $rows
""".strip()

_NEAR_LIMIT = """
SELECT cluster, broker, limiter, limiter_name, round(max(utilisation), 4) AS highest_utilisation,
  epoch_ms(arg_max(window_start_ms, utilisation)) AS in_window,
  round(arg_max(utilisation, window_start_ms), 4) AS newest_utilisation,
  CAST(sum(throttles) AS BIGINT) AS throttles
FROM limiter_stats
WHERE window_start_ms >= $since AND window_start_ms < $until AND utilisation IS NOT NULL
GROUP BY cluster, broker, limiter, limiter_name
ORDER BY max(utilisation) DESC, throttles DESC, cluster, broker, limiter, limiter_name
LIMIT $rows
""".strip()

_TOLD_TO_PAUSE = """
SELECT cluster, topic, coalesce(producer_name, concat(cnx_id, '/', producer_id)) AS producer,
  count(*) FILTER (WHERE exception IS NULL) AS commands,
  round(coalesce(sum(pause_ms) FILTER (WHERE exception IS NULL), 0) / 1e3, 3) AS announced_s,
  count(*) FILTER (WHERE exception IS NOT NULL) AS timed_out_sends,
  coalesce(list_sort(list(DISTINCT reason) FILTER (WHERE reason IS NOT NULL)), []) AS reasons,
  epoch_ms(max(ts_wall_ms)) AS newest
FROM producer_throttle
WHERE ts_wall_ms >= $since AND ts_wall_ms < $until
GROUP BY cluster, topic, producer
ORDER BY announced_s DESC, commands DESC, cluster, topic, producer
LIMIT $rows
""".strip()

_BREACHED = """
SELECT cluster, broker, kind, entity, count(*) AS breaches, round(max(ratio), 4) AS highest_ratio,
  arg_max("limit", window_start_ms) AS newest_limit, arg_max(used, window_start_ms) AS newest_used,
  epoch_ms(min(window_start_ms)) AS first_window, epoch_ms(max(window_start_ms)) AS last_window
FROM quota_usage
WHERE breached AND window_start_ms >= $since AND window_start_ms < $until
GROUP BY cluster, broker, kind, entity
ORDER BY breaches DESC, highest_ratio DESC NULLS LAST, cluster, broker, kind, entity
LIMIT $rows
""".strip()

_BY = Param("by", "what to sum up by", "namespace", allowed=("namespace", "tenant"))

QUESTIONS = (
    Question(
        "top-offenders", "Topics that broke their own limit: how often, and how long that paused"
        " them.", ("topic_throttle_stats",), _TOP_OFFENDERS,
    ),
    Question(
        "top-victims", "Topics that were paused by the fault of others: how often and how long.",
        ("topic_throttle_stats",), _TOP_VICTIMS,
    ),
    Question(
        "throttle-time", "Paused time of all topics of a namespace or tenant, by whose fault.",
        ("topic_throttle_stats",), _THROTTLE_TIME, (_BY, *USUAL),
    ),
    Question(
        "noisy-neighbours", "Who paused whom: for each culprit and victim the pauses that they"
        " shared; a pause with several culprits counts for each.",
        ("throttle_events",), _NOISY_NEIGHBOURS,
    ),
    Question(
        "near-limit", "Limiters by how near they came to their limit: the highest and the newest"
        " utilisation.", ("limiter_stats",), _NEAR_LIMIT,
    ),
    Question(
        "told-to-pause", "Producers whose client was told to pause (protocol=pip385): commands,"
        " announced time, sends that timed out.", ("producer_throttle",), _TOLD_TO_PAUSE,
    ),
    Question(
        "breached-quotas", "Every quota of every job that was breached: in how many windows, and"
        " by how much at worst.", ("quota_usage",), _BREACHED,
    ),
)
