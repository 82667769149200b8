"""The question what each tenant used: every job's use in one."""

from __future__ import annotations

from app.read.owner_rules import OWNED
from app.read.question import USUAL, Param, Question
from app.read.relations import OWNERS

# Kafka has no tenants and namespaces: a topic or user of Kafka is one of its own.
# A backlog counts from one check of the broker's topics to the next. Of caches side by side the
# largest counts.
_SHOWBACK = f"""
WITH passes AS (
  SELECT cluster, broker, pass_ms,
    lead(pass_ms) OVER (PARTITION BY cluster, broker ORDER BY pass_ms) AS next_ms
  FROM (SELECT DISTINCT cluster, broker, pass_ms FROM backlog_checks)
), used AS (
  SELECT cluster, topic, CAST(NULL AS VARCHAR) AS user_name, window_start_ms AS at_ms, messages,
    bytes, CAST(culprit_ns AS HUGEINT) + shared_ns + collateral_ns AS paused_ns,
    0 AS new_ids, CAST(0 AS DOUBLE) AS backlog, CAST(0 AS DOUBLE) AS cache
  FROM topic_throttle_stats
  UNION ALL
  SELECT cluster, NULL, s.user, window_start_ms, 0, 0, 0, new_ids, 0, 0
  FROM producer_id_stats AS s
  UNION ALL
  SELECT c.cluster, c.topic, NULL, c.pass_ms, 0, 0, 0, 0,
    c.backlog_bytes::DOUBLE * (p.next_ms::DOUBLE - c.pass_ms) / 1e3, 0
  FROM backlog_checks AS c
  JOIN passes AS p ON p.cluster = c.cluster AND p.broker = c.broker AND p.pass_ms = c.pass_ms
  UNION ALL
  SELECT cluster, topic, NULL, window_start_ms, 0, 0, 0, 0, 0,
    max(used_bytes::DOUBLE * window_ms / 1e3)
  FROM cache_stats WHERE topic IS NOT NULL
  GROUP BY cluster, broker, topic, window_start_ms
), kept AS (
  SELECT *, strftime(epoch_ms(at_ms), '%Y-%m') AS month FROM used
  WHERE at_ms >= $since AND at_ms < $until
), names AS (
  SELECT DISTINCT cluster, topic, user_name FROM kept
), owned AS (
  {OWNED}
), placed AS (
  SELECT k.*, o.owner, CASE $by WHEN 'principal' THEN coalesce(k.user_name, '(no principal)')
    WHEN 'team' THEN coalesce(o.owner.team, '(no team)')
    ELSE coalesce(CASE $by WHEN 'namespace' THEN weir_topic_namespace(k.topic)
      WHEN 'tenant' THEN weir_topic_tenant(k.topic) END, k.topic, k.user_name, '(no topic)')
    END AS name
  FROM kept AS k
  LEFT JOIN owned AS o ON o.cluster = k.cluster AND o.topic IS NOT DISTINCT FROM k.topic
    AND o.user_name IS NOT DISTINCT FROM k.user_name
)
SELECT cluster, month, name, CAST(sum(messages) AS BIGINT) AS messages,
  CAST(sum(bytes) AS BIGINT) AS bytes, sum(paused_ns) / 1e9 AS paused_s,
  CAST(sum(new_ids) AS BIGINT) AS new_ids, round(sum(coalesce(backlog, 0))) AS backlog_byte_s,
  round(sum(coalesce(cache, 0))) AS cache_byte_s,
  list_sort(list(DISTINCT owner.team) FILTER (WHERE owner.team IS NOT NULL)) AS teams,
  list_sort(list(DISTINCT owner.contact) FILTER (WHERE owner.contact IS NOT NULL)) AS contacts,
  list_sort(list(DISTINCT owner.cost_centre) FILTER (WHERE owner.cost_centre IS NOT NULL))
    AS cost_centres
FROM placed
GROUP BY cluster, month, name
ORDER BY month DESC, bytes DESC, new_ids DESC, cluster, name
LIMIT $rows
""".strip()

QUESTIONS = (
    Question(
        "showback",
        "What each tenant used in each month: messages, bytes, paused time, new"
        " producer ids, backlog and cache (bytes times seconds), and its owners; a topic or user of"
        " Kafka, which has no tenants, is one of its own.",
        ("topic_throttle_stats", "producer_id_stats", "backlog_checks", "cache_stats", OWNERS),
        _SHOWBACK,
        (
            Param(
                "by",
                "what is summed",
                "tenant",
                allowed=("tenant", "namespace", "topic", "principal", "team"),
            ),
            *USUAL,
        ),
        place=1,
    ),
)
