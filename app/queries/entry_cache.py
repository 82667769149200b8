"""Questions about the job `entry_cache`: what the cache is good for."""

from __future__ import annotations

from app.queries.question import Question

# A null topic is the whole broker.
_HIT_RATIO = """
SELECT cluster, policy, max_bytes, CAST(sum(hits) AS BIGINT) AS hits,
  CAST(sum(misses) AS BIGINT) AS misses,
  round(sum(hits) / nullif(sum(hits) + sum(misses), 0), 4) AS hit_ratio,
  round(sum(hit_bytes) / nullif(sum(hit_bytes) + sum(miss_bytes), 0), 4) AS hit_ratio_bytes,
  CAST(sum(evicted_wanted) AS BIGINT) AS evicted_wanted, max(max_used_bytes) AS max_used_bytes
FROM cache_stats
WHERE topic IS NULL AND window_start_ms >= $since AND window_start_ms < $until
GROUP BY cluster, policy, max_bytes
ORDER BY hit_ratio DESC NULLS LAST, cluster, policy, max_bytes
LIMIT $rows
""".strip()

QUESTIONS = (
    Question(
        "cache-hit-ratio", "Share of reads that each eviction policy served from the cache, by its"
        " size.", ("cache_stats",), _HIT_RATIO,
    ),
)
