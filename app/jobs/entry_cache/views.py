"""The view of the job: a cache's figures under the names of Pulsar's own metrics."""

from __future__ import annotations

from app.tables.view import View

# Counters sum all windows, gauges are of the newest one, rates are per second of it. Rows per topic
# are parts of those of their broker.
_METRICS = """
WITH whole AS (
  SELECT s.*, row_number() OVER (
      PARTITION BY s.cluster, s.broker, s.policy, s.max_bytes ORDER BY s.window_start_ms DESC
    ) AS place
  FROM cache_stats AS s WHERE s.topic IS NULL
), sums AS (
  SELECT cluster, broker, policy, max_bytes, sum(passes_size) AS passes, sum(inserted) AS inserted,
    sum(evicted_time + evicted_size) AS evicted
  FROM whole GROUP BY cluster, broker, policy, max_bytes
)
SELECT n.name AS metric, 'counter' AS kind, s.cluster, s.broker, s.policy, s.max_bytes,
  CAST(CASE n.name WHEN 'pulsar_ml_cache_evictions' THEN s.passes
    WHEN 'pulsar_ml_cache_inserted_entries_total' THEN s.inserted ELSE s.evicted END AS DOUBLE)
    AS value
FROM sums AS s CROSS JOIN (VALUES ('pulsar_ml_cache_evictions'),
  ('pulsar_ml_cache_inserted_entries_total'), ('pulsar_ml_cache_evicted_entries_total')) AS n(name)
UNION ALL
SELECT n.name, 'gauge', w.cluster, w.broker, w.policy, w.max_bytes,
  CASE n.name WHEN 'pulsar_ml_cache_entries' THEN CAST(w.entries AS DOUBLE)
    WHEN 'pulsar_ml_cache_used_size' THEN CAST(w.used_bytes AS DOUBLE)
    WHEN 'pulsar_ml_cache_hits_rate' THEN CAST(w.hits AS DOUBLE) * 1000 / w.window_ms
    WHEN 'pulsar_ml_cache_misses_rate' THEN CAST(w.misses AS DOUBLE) * 1000 / w.window_ms
    WHEN 'pulsar_ml_cache_hits_throughput' THEN CAST(w.hit_bytes AS DOUBLE) * 1000 / w.window_ms
    ELSE CAST(w.miss_bytes AS DOUBLE) * 1000 / w.window_ms END
FROM whole AS w CROSS JOIN (VALUES ('pulsar_ml_cache_entries'), ('pulsar_ml_cache_used_size'),
  ('pulsar_ml_cache_hits_rate'), ('pulsar_ml_cache_misses_rate'),
  ('pulsar_ml_cache_hits_throughput'), ('pulsar_ml_cache_misses_throughput')) AS n(name)
WHERE w.place = 1
""".strip()

VIEWS = (
    View(
        "cache_metrics",
        "Each cache under the names of Pulsar's own metrics; counters since the tables begin.",
        _METRICS,
        reads=("cache_stats",),
        place=1,
    ),
)
