"""Views of the job: owners of ids, what the quota counted, and KIP-936's metrics."""

from __future__ import annotations

from app.tables.view import View

# `user` is written with its table: alone, the word is a function in some engines.
_PRODUCER_ID_OWNER = """
WITH ranked AS (
  SELECT o.cluster, o.producer_id, o.user AS user, o.client_id, o.ts_wall_ms, row_number() OVER (
      PARTITION BY o.cluster, o.producer_id
      ORDER BY o.ts_wall_ms DESC, o.user DESC, o.client_id DESC NULLS LAST
    ) AS place
  FROM producer_id_owners AS o
)
SELECT r.cluster, r.producer_id, r.user AS user, r.client_id, r.ts_wall_ms AS since_ms
FROM ranked AS r WHERE r.place = 1
""".strip()

# What the quota sees against what is true: with membership=exact a recount is known to be one.
_PRODUCER_ID_DISTINCT = """
SELECT s.cluster, s.broker, s.user AS user, s.window_start_ms, s.window_ms,
  s.new_ids AS counted_ids,
  CAST(count(CASE WHEN NOT d.recount THEN 1 END) AS BIGINT) AS distinct_ids,
  CAST(count(CASE WHEN d.recount THEN 1 END) AS BIGINT) AS recounted_ids
FROM producer_id_stats AS s
LEFT JOIN producer_id_decisions AS d
  ON d.cluster = s.cluster AND d.broker = s.broker AND d.user = s.user
  AND d.ts_wall_ms >= s.window_start_ms
  AND d.ts_wall_ms < CAST(s.window_start_ms AS DOUBLE) + s.window_ms
  AND d.verdict <> 'rejected' AND d.switches['membership'] = 'exact'
WHERE s.switches['membership'] = 'exact'
GROUP BY s.cluster, s.broker, s.user, s.window_start_ms, s.window_ms, s.new_ids
""".strip()

_PRODUCER_ID_METRICS = """
WITH ranked AS (
  SELECT s.cluster, s.broker, s.user AS user, s.rate, s.tokens, s.throttle_time_avg_ms,
    s.ts_wall_ms, row_number() OVER (
      PARTITION BY s.cluster, s.broker, s.user ORDER BY s.window_start_ms DESC, s.ts_wall_ms DESC
    ) AS place
  FROM producer_id_stats AS s
), named AS (
  SELECT r.*, n.name FROM ranked AS r
  CROSS JOIN (VALUES ('rate'), ('tokens'), ('throttle-time')) AS n(name)
  WHERE r.place = 1
)
SELECT 'kafka.server:type=ProducerIds' AS metric, m.name AS attribute, m.cluster, m.broker,
  m.user AS user, m.ts_wall_ms,
  CASE m.name WHEN 'rate' THEN m.rate WHEN 'tokens' THEN m.tokens
    ELSE coalesce(m.throttle_time_avg_ms, CAST(0 AS DOUBLE)) END AS value
FROM named AS m WHERE m.name <> 'tokens' OR m.tokens IS NOT NULL
""".strip()

VIEWS = (
    View(
        "producer_id_owner",
        "Owner of each producer id: its latest row of producer_id_owners.",
        _PRODUCER_ID_OWNER,
        reads=("producer_id_owners",),
    ),
    View(
        "producer_id_distinct",
        "Per user and window of a run with membership=exact: ids that the quota counted, new ids"
        " among them, and recounts.",
        _PRODUCER_ID_DISTINCT,
        reads=("producer_id_stats", "producer_id_decisions"),
    ),
    View(
        "producer_id_metrics",
        "The newest window of each user under the names of KIP-936's metrics.",
        _PRODUCER_ID_METRICS,
        reads=("producer_id_stats",),
    ),
)
