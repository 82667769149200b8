"""Views of the job: what became of large messages that were given up."""

from __future__ import annotations

from app.tables.view import View

GIVEN_UP = {
    "EXPIRED": "expired",
    "GAP": "lost",
    "NO_FIRST_CHUNK": "lost",
    "SHARED_ORPHAN": "lost",
    "EVICTED": "given_up",
    "ORPHANED": "given_up",
    "GIVEN_UP_COUNT": "given_up",
    "GIVEN_UP_OVERFLOW": "given_up",
    "COUNT_EXCEPTION": "given_up",
    "OVERFLOW_EXCEPTION": "given_up",
}
"""Outcomes by which a subscription does not get a large message, and in which words it is told."""
_OUTCOMES = ", ".join(f"'{outcome}'" for outcome in GIVEN_UP if outcome != "SHARED_ORPHAN")
ENDS = f"""
(e.outcome IN ({_OUTCOMES}) OR (e.outcome = 'SHARED_ORPHAN' AND CAST(e.acks AS STRING) <> '[]'))
""".strip()
"""That decision `e` gives a message up. An orphan does where its chunk is acknowledged: else its
subscription is stalled."""
# A topic writes every window while a message of it is incomplete or stalled, and the one after.
INCOMPLETE_NOW = """
SELECT i.cluster, i.broker, i.ts_wall_ms, i.row_no, i.topic, i.subscription, i.consumer,
  i.window_start_ms, i.window_ms, i.state, i.uuid, i.producer_name, i.sequence_id, i.num_chunks,
  i.next_chunk_id, i.first_position, i.last_position, i.first_chunk_ms, i.last_chunk_ms, i.age_ms,
  i.buffered_bytes, i.declared_bytes, i.expires_ms, i.stalled_at, i.missing_chunks
FROM incomplete_messages AS i JOIN (
  SELECT w.cluster, w.topic, max(w.window_start_ms) AS window_start_ms FROM (
    SELECT s.cluster, s.topic, s.window_start_ms FROM chunk_topic_stats AS s
    UNION ALL
    SELECT i.cluster, i.topic, i.window_start_ms FROM incomplete_messages AS i
  ) AS w GROUP BY w.cluster, w.topic
) AS n ON n.cluster = i.cluster AND n.topic = i.topic AND n.window_start_ms = i.window_start_ms
""".strip()
# What comes after the first of them are consequences: chunks of an expired message find none.
GIVEN_UP_MESSAGES = f"""
WITH ended AS (
  SELECT e.cluster, e.topic, e.subscription, e.uuid, e.outcome, e.consumer,
    e.ts_wall_ms AS given_up_ms, max(e.ts_wall_ms) OVER (
      PARTITION BY e.cluster, e.topic, e.subscription, e.uuid
    ) AS newest_ms, row_number() OVER (
      PARTITION BY e.cluster, e.topic, e.subscription, e.uuid ORDER BY e.ts_wall_ms, e.row_no
    ) AS place
  FROM chunk_events AS e WHERE {ENDS}
), waiting AS (
{INCOMPLETE_NOW}
)
SELECT g.cluster, g.topic, g.subscription, g.uuid, g.outcome, g.consumer, g.given_up_ms, g.newest_ms,
  CASE WHEN EXISTS (
      SELECT 1 FROM chunk_messages AS m WHERE m.cluster = g.cluster AND m.topic = g.topic
        AND m.subscription = g.subscription AND m.uuid = g.uuid
    ) THEN 'arrived' WHEN EXISTS (
      SELECT 1 FROM waiting AS i
      WHERE i.cluster = g.cluster AND i.topic = g.topic AND i.subscription = g.subscription
        AND i.uuid = g.uuid AND i.ts_wall_ms > g.newest_ms
    ) THEN 'waiting' ELSE 'lost' END AS fate
FROM ended AS g WHERE g.place = 1
""".strip()

VIEWS = (
    View(
        "incomplete_now",
        "Large messages that wait for a chunk, or that a stalled subscription has not got, at the end of"
        " the newest window of their topic.",
        INCOMPLETE_NOW,
        reads=("incomplete_messages", "chunk_topic_stats"),
    ),
    View(
        "given_up_messages",
        "Large messages that a subscription was not given, by the outcome of the first decision that says"
        " so. `fate`: lost, arrived (it was delivered again) or waiting (it is assembled again, or stalled).",
        GIVEN_UP_MESSAGES,
        reads=("chunk_events", "chunk_messages", "incomplete_messages", "chunk_topic_stats"),
    ),
)
