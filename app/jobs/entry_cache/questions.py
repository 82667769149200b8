"""Questions of the job: hit ratios and sizes of the cache."""

from __future__ import annotations

from app.read.question import SINCE, UNTIL, Param, Question

# A null topic is the whole broker. Caches of one policy and size differ in parameters:
# `settings` are those that are not the same for all of them.
_HIT_RATIO = """
WITH kept AS (
  SELECT * FROM cache_stats
  WHERE topic IS NULL AND window_start_ms >= $since AND window_start_ms < $until
), configured AS (
  SELECT DISTINCT switches FROM kept
), pairs AS (
  SELECT unnest(map_entries(switches)) AS pair FROM configured
), differing AS (
  SELECT list(DISTINCT pair.key) AS names
  FROM (SELECT pair, count(*) OVER (PARTITION BY pair) AS caches FROM pairs)
  WHERE caches < (SELECT count(*) FROM configured) AND pair.key <> 'policy'
)
SELECT cluster, policy, max_bytes, nullif(array_to_string(
    [e.key || '=' || e.value FOR e IN map_entries(switches) IF list_contains(names, e.key)], ', '
  ), '') AS settings, CAST(sum(hits) AS BIGINT) AS hits,
  CAST(sum(misses) AS BIGINT) AS misses,
  sum(hits) / nullif(sum(hits) + sum(misses), 0) AS hit_ratio,
  sum(hit_bytes) / nullif(sum(hit_bytes) + sum(miss_bytes), 0) AS hit_ratio_bytes,
  CAST(sum(evicted_wanted) AS BIGINT) AS evicted_wanted, max(max_used_bytes) AS max_used_bytes
FROM kept, differing
GROUP BY cluster, policy, max_bytes, settings
ORDER BY hit_ratio DESC NULLS LAST, cluster, policy, max_bytes, settings
LIMIT $rows
""".strip()

# A null broker is all brokers together; comparisons are independent, the latest counts.
_BAKEOFF = """
WITH latest AS (
  SELECT * FROM cache_bakeoff
  WHERE broker IS NULL AND compared_ms >= $since AND compared_ms < $until
  QUALIFY compared_ms = max(compared_ms) OVER ()
)
SELECT trace, policy, settings, max_bytes, hit_ratio, storage_bytes,
  1 - storage_bytes / nullif(max(storage_bytes) FILTER (WHERE policy = 'proportional')
    OVER (PARTITION BY max_bytes, settings), 0) AS saved_against_proportional,
  wanted_bytes, max_used_bytes, evicted_wanted, passes, work
FROM latest
ORDER BY max_bytes, hit_ratio DESC, policy
LIMIT $rows
""".strip()

_MEMORY = """
WITH latest AS (
  SELECT * FROM cache_bakeoff
  WHERE broker IS NOT NULL AND policy <> 'belady' AND compared_ms >= $since
    AND compared_ms < $until
  QUALIFY compared_ms = max(compared_ms) OVER ()
), reached AS (
  SELECT *, max(hit_ratio) OVER (PARTITION BY cluster, broker, policy, settings) AS best
  FROM latest WHERE hit_ratio IS NOT NULL
)
SELECT trace, cluster, broker, policy, settings, min(max_bytes) AS enough_bytes,
  arg_min(hit_ratio, max_bytes) AS hit_ratio, max(best) AS best_hit_ratio,
  arg_min(storage_bytes, max_bytes) AS storage_bytes
FROM reached
WHERE hit_ratio >= best - 0.01
GROUP BY trace, cluster, broker, policy, settings
ORDER BY cluster, broker, hit_ratio DESC, policy, settings
LIMIT $rows
""".strip()

_NEEDS = "the command bakeoff writes them, from the archive"
QUESTIONS = (
    Question(
        "cache-hit-ratio",
        "Share of reads that each eviction policy served from the cache, by its size.",
        ("cache_stats",),
        _HIT_RATIO,
        usual=True,
    ),
    Question(
        "cache-bakeoff",
        "The latest bake-off: every eviction policy at every size, by size and hit ratio.",
        ("cache_bakeoff",),
        _BAKEOFF,
        (SINCE, UNTIL, Param("rows", "maximum number of rows", 100)),
        _NEEDS,
        units={"saved_against_proportional": "share"},
    ),
    Question(
        "cache-size-enough",
        "How large each broker's cache has to be, by policy, so that more"
        " would answer less than 1 % more of the reads.",
        ("cache_bakeoff",),
        _MEMORY,
        needs=_NEEDS,
    ),
)
