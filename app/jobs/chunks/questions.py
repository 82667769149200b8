"""Questions of the job: outcomes of large messages."""

from __future__ import annotations

from app.read.question import ROWS, Question

_LOST = """
SELECT cluster, topic, subscription, outcome, count(*) FILTER (WHERE fate = 'lost') AS lost,
  count(*) FILTER (WHERE fate = 'arrived') AS arrived_after_all,
  arg_max(uuid, newest_ms) FILTER (WHERE fate = 'lost') AS newest_lost,
  epoch_ms(max(newest_ms)) AS newest
FROM given_up_messages WHERE newest_ms >= $since AND newest_ms < $until
GROUP BY cluster, topic, subscription, outcome
ORDER BY lost DESC, arrived_after_all DESC, cluster, topic, subscription, outcome
LIMIT $rows
""".strip()

_INCOMPLETE = """
SELECT i.cluster, i.topic, i.subscription, i.consumer, i.state, i.uuid, i.producer_name,
  i.next_chunk_id, i.num_chunks, epoch_ms(i.first_chunk_ms) AS first_chunk,
  i.age_ms / 1e3 AS age_s, i.buffered_bytes, i.declared_bytes,
  epoch_ms(i.expires_ms) AS expires
FROM incomplete_now AS i
ORDER BY i.age_ms DESC, i.cluster, i.topic, i.subscription, i.uuid
LIMIT $rows
""".strip()
# The message that holds up the others is the one with the chunk at which the subscription stands.
_STALLED = """
WITH stalled AS (
  SELECT i.cluster, i.topic, i.subscription, i.stalled_at, count(*) AS messages,
    max(i.missing_chunks) FILTER (WHERE i.first_position = i.stalled_at) AS gone,
    arg_max(i.uuid, i.first_position = i.stalled_at) AS uuid, min(i.first_chunk_ms) AS since_ms
  FROM incomplete_now AS i
  WHERE i.state = 'stalled'
  GROUP BY ALL
)
SELECT cluster, topic, subscription,
  concat(messages, CASE messages WHEN 1 THEN ' large message' ELSE ' large messages' END,
    ' stalled behind ', stalled_at, ', whose ', CASE len(gone) WHEN 1
      THEN concat('chunk ', gone[1], ' is gone')
      ELSE concat('chunks ', array_to_string(gone[:-2], ', '), ' and ', gone[-1], ' are gone') END
  ) AS stalled,
  uuid, epoch_ms(since_ms) AS since
FROM stalled
ORDER BY messages DESC, cluster, topic, subscription
LIMIT $rows
""".strip()

# The acknowledgement of a large message names all its chunks at once. A cumulative one covers what
# is before it, chunks of other messages too; the newest minute of a cluster is left out, in which one
# may be half-way. A message that was delivered twice is one.
_PARTIAL = """
WITH acks AS (
  SELECT cluster, subscription, ledger_id, entry_id, coalesce(ack_cumulative, false) AS cumulative,
    ts_wall_ms, concat(
      CASE WHEN contains(topic, '://') THEN '' ELSE 'persistent://' END, topic,
      CASE WHEN partition IS NULL OR regexp_matches(topic, '-partition-[0-9]+$') THEN ''
        ELSE concat('-partition-', partition) END) AS topic
  FROM events WHERE event_type = 'ack' AND ts_wall_ms >= $since AND ts_wall_ms < $until
), chunks AS (
  SELECT cluster, topic, subscription, consumer, uuid, complete_ms, position,
    CAST(split_part(position, ':', 1) AS BIGINT) AS ledger_id,
    CAST(split_part(position, ':', 2) AS BIGINT) AS entry_id
  FROM (
    SELECT cluster, topic, subscription, consumer, uuid, complete_ms,
      unnest(positions) AS position
    FROM chunk_messages WHERE complete_ms >= $since AND complete_ms < $until
    QUALIFY complete_ms = max(complete_ms) OVER (PARTITION BY cluster, topic, subscription, uuid)
  )
), single AS (
  SELECT c.cluster, c.topic, c.subscription, c.position, max(a.ts_wall_ms) AS ack_ms
  FROM chunks AS c JOIN acks AS a
    ON a.cluster = c.cluster AND a.topic = c.topic AND a.subscription = c.subscription
    AND a.ledger_id = c.ledger_id AND a.entry_id = c.entry_id
  GROUP BY ALL
), up_to AS (
  SELECT cluster, topic, subscription, max((ledger_id, entry_id)) AS place,
    arg_max(ts_wall_ms, (ledger_id, entry_id)) AS ack_ms
  FROM acks WHERE cumulative GROUP BY ALL
), told AS (
  SELECT c.* EXCLUDE (ledger_id, entry_id), (ledger_id, entry_id) AS place, greatest(
    s.ack_ms, CASE WHEN (ledger_id, entry_id) <= u.place THEN u.ack_ms END) AS ack_ms
  FROM chunks AS c
  LEFT JOIN single AS s USING (cluster, topic, subscription, position)
  LEFT JOIN up_to AS u USING (cluster, topic, subscription)
), newest AS (
  SELECT cluster, max(ts_wall_ms) AS ms FROM events
  WHERE ts_wall_ms >= $since AND ts_wall_ms < $until GROUP BY ALL
)
SELECT cluster, topic, subscription, consumer, uuid, count(*) AS chunks,
  count(ack_ms) AS acknowledged,
  arg_min(position, place) FILTER (WHERE ack_ms IS NULL) AS first_unacknowledged,
  epoch_ms(max(ack_ms)) AS newest_ack
FROM told JOIN newest AS n USING (cluster)
GROUP BY cluster, topic, subscription, consumer, uuid, n.ms
HAVING count(ack_ms) BETWEEN 1 AND count(*) - 1 AND max(ack_ms) < n.ms - 60000
ORDER BY newest_ack DESC, cluster, topic, subscription, uuid
LIMIT $rows
""".strip()

QUESTIONS = (
    Question(
        "lost-messages",
        "Large messages that consumers gave up, by outcome, and how many of them arrived later.",
        ("chunk_events", "chunk_messages", "incomplete_messages", "chunk_topic_stats"),
        _LOST,
        usual=True,
    ),
    Question(
        "incomplete-messages",
        "Large messages that wait for a chunk, or that a stalled"
        " subscription has not got, at the end of their topic's newest window, the oldest first.",
        ("incomplete_messages", "chunk_topic_stats"),
        _INCOMPLETE,
        (ROWS,),
        first=(
            "cluster",
            "topic",
            "subscription",
            "consumer",
            "state",
            "producer_name",
            "age_s",
            "buffered_bytes",
        ),
    ),
    Question(
        "stalled-subscriptions",
        "Shared subscriptions that have stopped at a chunk whose first"
        " chunks are gone, and the number of large messages that wait for them.",
        ("incomplete_messages", "chunk_topic_stats"),
        _STALLED,
        (ROWS,),
    ),
    Question(
        "partial-acks",
        "Complete large messages of which some chunks were acknowledged and others"
        " not, the newest first.",
        ("chunk_messages", "events"),
        _PARTIAL,
    ),
)
