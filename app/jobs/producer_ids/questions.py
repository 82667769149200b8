"""Questions of the job: new producer ids by user, and users over their bound."""

from __future__ import annotations

from app.read.question import ROWS, UNTIL, Question

# `user` is written with its table: alone, the word is a function.
_NEW_IDS = """
SELECT d.cluster, d.user AS user, count(DISTINCT d.producer_id) AS distinct_ids,
  count(*) FILTER (WHERE d.verdict = 'counted') AS counted,
  count(*) FILTER (WHERE d.verdict = 'throttled') AS throttled,
  count(*) FILTER (WHERE d.verdict = 'rejected') AS rejected,
  count(DISTINCT d.client_id) AS clients,
  arg_max(d.bound, d.ts_wall_ms) FILTER (WHERE d.bound_source <> 'none') AS bound,
  epoch_ms(min(d.ts_wall_ms)) AS first_id, epoch_ms(max(d.ts_wall_ms)) AS last_id
FROM producer_id_decisions AS d
WHERE d.ts_wall_ms >= $since AND d.ts_wall_ms < $until
GROUP BY d.cluster, d.user
ORDER BY distinct_ids DESC, d.cluster, d.user
LIMIT $rows
""".strip()

_OVER_BOUND = """
SELECT d.cluster, d.broker, d.user AS user, count(*) AS batches_over,
  count(DISTINCT d.producer_id) AS ids_over,
  arg_max(d.bound, d.ts_wall_ms) AS bound, arg_max(d.bound_source, d.ts_wall_ms) AS bound_source,
  max(d.throttle_ms) AS longest_throttle_ms,
  epoch_ms(min(d.ts_wall_ms)) AS first_batch, epoch_ms(max(d.ts_wall_ms)) AS last_batch
FROM producer_id_decisions AS d
WHERE d.verdict IN ('throttled', 'rejected') AND d.ts_wall_ms >= $since AND d.ts_wall_ms < $until
GROUP BY d.cluster, d.broker, d.user
ORDER BY batches_over DESC, d.cluster, d.broker, d.user
LIMIT $rows
""".strip()

_LIVE = """
SELECT l.cluster, l.broker, l.topic, l.user AS user, l.live_ids, l.states, l.heap_bytes,
  epoch_ms(l.polled_ms) AS polled
FROM producer_id_live AS l
WHERE l.polled_ms < $until
QUALIFY row_number() OVER (
  PARTITION BY l.cluster, l.broker, l.topic, l.user ORDER BY l.polled_ms DESC, l.number DESC
) = 1 AND l.states > 0
ORDER BY l.states DESC, l.cluster, l.broker, l.topic, l.user
LIMIT $rows
""".strip()

_OPEN = """
WITH newest AS (
  SELECT *, min(polled_ms) OVER (
      PARTITION BY cluster, topic, partition, producer_id, start_offset) AS first_ms
  FROM open_transactions WHERE polled_ms < $until
  QUALIFY row_number() OVER (
    PARTITION BY cluster, topic, partition, producer_id, start_offset
    ORDER BY polled_ms DESC, number DESC
  ) = 1
)
SELECT n.cluster, n.user AS user, n.transactional_id, n.producer_id, n.state,
  string_agg(DISTINCT n.topic, ', ' ORDER BY n.topic) AS topics, count(*) AS partitions,
  epoch_ms(min(coalesce(n.start_ms, n.first_ms))) AS open_since,
  any_value(n.timeout_ms) / 1000 AS timeout_s, epoch_ms(max(n.last_ms)) AS last_batch,
  epoch_ms(max(n.polled_ms)) AS polled
FROM newest AS n
WHERE n.state <> 'ended'
GROUP BY n.cluster, n.user, n.transactional_id, n.producer_id, n.state
ORDER BY n.state <> 'hanging', open_since, n.cluster, n.user, n.transactional_id, n.producer_id
LIMIT $rows
""".strip()

QUESTIONS = (
    Question(
        "open-transactions",
        "Kafka: transactions that stay open, those that hang first: whose, since when, and in how"
        " many partitions.",
        ("open_transactions",),
        _OPEN,
        (UNTIL, ROWS),
        needs="a row needs a transaction that two polls of source.format kafka_producers have met",
        first=(
            "cluster",
            "user",
            "transactional_id",
            "state",
            "topics",
            "partitions",
            "open_since",
            "timeout_s",
        ),
    ),
    Question(
        "live-producer-ids",
        "Producer ids that brokers hold, by topic and owner, with their states"
        " (one per partition) and the heap of these.",
        ("producer_id_live",),
        _LIVE,
        (UNTIL, ROWS),
    ),
    Question(
        "new-producer-ids",
        "New producer ids by user, each once (distinct_ids), and what the"
        " brokers decided: an id that two brokers see is counted twice.",
        ("producer_id_decisions",),
        _NEW_IDS,
        usual=True,
    ),
    Question(
        "users-over-bound",
        "Users that brought new producer ids above their bound, with the bound"
        " and where it comes from.",
        ("producer_id_decisions",),
        _OVER_BOUND,
    ),
)
