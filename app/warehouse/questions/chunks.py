"""Questions about the job `chunks`: outcomes of large messages."""

from __future__ import annotations

from app.warehouse.questions.question import ROWS, Question

_LOST = """
WITH given_up AS (
  SELECT cluster, topic, subscription, outcome, uuid, max(ts_wall_ms) AS at_ms
  FROM chunk_events
  WHERE outcome IN ('EXPIRED', 'GAP', 'NO_FIRST_CHUNK', 'SHARED_ORPHAN', 'EVICTED', 'ORPHANED',
      'GIVEN_UP_COUNT', 'GIVEN_UP_OVERFLOW', 'COUNT_EXCEPTION', 'OVERFLOW_EXCEPTION')
    AND ts_wall_ms >= $since AND ts_wall_ms < $until
  GROUP BY cluster, topic, subscription, outcome, uuid
), whole AS (
  SELECT cluster, topic, subscription, uuid FROM chunk_messages GROUP BY ALL
)
SELECT g.cluster, g.topic, g.subscription, g.outcome,
  count(*) FILTER (WHERE w.uuid IS NULL) AS lost,
  count(*) FILTER (WHERE w.uuid IS NOT NULL) AS arrived_after_all,
  arg_max(g.uuid, g.at_ms) FILTER (WHERE w.uuid IS NULL) AS newest_lost,
  epoch_ms(max(g.at_ms)) AS newest
FROM given_up AS g
LEFT JOIN whole AS w
  ON w.cluster = g.cluster AND w.topic = g.topic AND w.subscription = g.subscription
  AND w.uuid = g.uuid
GROUP BY g.cluster, g.topic, g.subscription, g.outcome
ORDER BY lost DESC, arrived_after_all DESC, g.cluster, g.topic, g.subscription, g.outcome
LIMIT $rows
""".strip()

# A topic writes every window while a message of it is incomplete.
_INCOMPLETE = """
WITH newest AS (
  SELECT cluster, topic, max(window_start_ms) AS window_start_ms FROM (
    SELECT cluster, topic, window_start_ms FROM chunk_topic_stats
    UNION ALL
    SELECT cluster, topic, window_start_ms FROM incomplete_messages
  ) GROUP BY cluster, topic
)
SELECT i.cluster, i.topic, i.subscription, i.consumer, i.uuid, i.producer_name, i.next_chunk_id,
  i.num_chunks, epoch_ms(i.first_chunk_ms) AS first_chunk, round(i.age_ms / 1e3, 3) AS age_s,
  i.buffered_bytes, i.declared_bytes, epoch_ms(i.expires_ms) AS expires
FROM incomplete_messages AS i
JOIN newest AS n
  ON n.cluster = i.cluster AND n.topic = i.topic AND n.window_start_ms = i.window_start_ms
ORDER BY i.age_ms DESC, i.cluster, i.topic, i.subscription, i.uuid
LIMIT $rows
""".strip()

QUESTIONS = (
    Question(
        "lost-messages", "Large messages that consumers gave up, by outcome, and how many of them"
        " arrived later.", ("chunk_events", "chunk_messages"), _LOST,
    ),
    Question(
        "incomplete-messages", "Large messages that wait for a chunk at the end of their topic's"
        " newest window, the oldest first.", ("incomplete_messages", "chunk_topic_stats"),
        _INCOMPLETE, (ROWS,),
    ),
)
