"""Views of the job: owners of ids, what the quota counted, and KIP-936's metrics."""

from __future__ import annotations

from app.tables.view import View

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
        "producer_id_metrics",
        "The newest window of each user under the names of KIP-936's metrics.",
        _PRODUCER_ID_METRICS,
        reads=("producer_id_stats",),
    ),
)
