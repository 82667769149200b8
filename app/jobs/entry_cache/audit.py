"""What must hold of the tables of the job entry_cache."""

from __future__ import annotations

from app.show.audit.checks import (
    AuditCheck,
    no_rows,
    rows_that,
    suite,
)

TRIGGER = 0.98
"""Share of a cache's size above which a pass has to free memory."""
_COUNTS = (
    "hits",
    "misses",
    "hit_bytes",
    "miss_bytes",
    "inserted",
    "evicted_time",
    "evicted_size",
    "invalidated",
    "evicted_wanted",
    "extended",
    "stashed",
)
_LEVELS = ("entries", "used_bytes", "wanted_bytes", "non_evictable_bytes")
_OF_BROKER = ("passes_size", "entries_visited", "max_used_bytes")
_RATIO_AMISS = """
hit_ratio IS DISTINCT FROM CASE WHEN hits + misses > 0
  THEN CAST(hits AS DOUBLE) / CAST(hits + misses AS DOUBLE) END
"""
_RULE_AMISS = """
rule <> cause AND rule NOT IN (
  concat(cause, '+extended_out'), concat(cause, '+unread'), concat(cause, '+never_wanted')
)
OR regexp_matches(rule, '[+](extended_out|unread)$') AND coalesce(expected_remaining, 0) <= 0
OR rule LIKE '%+never_wanted' AND (expected_remaining IS NOT NULL OR accessed)
"""
_POLICY = "cluster, broker, params_hash, policy"
"""The columns that identify a cache: a size may change, several may share policy and size."""


def _same(left: str, right: str) -> str:
    """Two rows are of one broker and policy."""
    return " AND ".join(f"{left}.{c} = {right}.{c}" for c in _POLICY.split(", "))


def _sums(which: str) -> str:
    """What the caches of a policy have counted and hold, by window, from the rows `which`."""
    sums = ", ".join(f"sum({column}) AS {column}" for column in (*_COUNTS, *_LEVELS))
    return (
        f"SELECT {_POLICY}, window_start_ms, window_ms, {sums} FROM {{batch}}"
        f" WHERE topic IS {which} GROUP BY ALL"
    )


_BROKER_UNLIKE_TOPICS = f"""
SELECT whole.* FROM ({_sums("NULL")}) AS whole JOIN ({_sums("NOT NULL")}) AS parts
  ON {_same("whole", "parts")} AND whole.window_start_ms = parts.window_start_ms
WHERE {" OR ".join(f"whole.{c} <> parts.{c}" for c in (*_COUNTS, *_LEVELS))}
"""


def _unlike_rows(table: str, counts: dict[str, str]) -> str:
    """Windows that count otherwise than the rows of a table, each count by its aggregate there.

    The table is off by default: policies with rows there are checked, from their first row on.
    A row without a wall time has no window.
    """
    counted = ", ".join(f"{sql} AS {name}" for name, sql in counts.items())
    differ = " OR ".join(f"w.{name} <> coalesce(counted.{name}, 0)" for name in counts)
    return f"""
SELECT w.* FROM ({_sums("NULL")}) AS w
JOIN (
  SELECT {_POLICY}, min(ts_wall_ms) AS first_ms FROM {table}
  GROUP BY ALL HAVING count(*) = count(ts_wall_ms)
) AS known ON {_same("w", "known")} AND w.window_start_ms >= known.first_ms
LEFT JOIN (
  SELECT r.cluster, r.broker, r.params_hash, r.policy, l.window_ms,
    r.ts_wall_ms - r.ts_wall_ms % l.window_ms AS window_start_ms, {counted}
  FROM {table} AS r CROSS JOIN (SELECT DISTINCT window_ms FROM {{batch}}) AS l GROUP BY ALL
) AS counted ON {_same("w", "counted")}
  AND w.window_ms = counted.window_ms AND w.window_start_ms = counted.window_start_ms
WHERE {differ}
"""


_WINDOW_UNLIKE_READS = _unlike_rows(
    "cache_reads",
    {"hits": "count_if(r.hit)", "misses": "count_if(NOT r.hit)"},
)
_WINDOW_UNLIKE_EVICTIONS = _unlike_rows(
    "cache_evictions",
    {
        "evicted_time": "count_if(r.cause = 'time')",
        "evicted_size": "count_if(r.cause = 'size')",
        "invalidated": "count_if(r.cause = 'invalidated')",
        "evicted_wanted": "count_if(r.cause <> 'invalidated' AND r.expected_remaining > 0)",
    },
)
# What caches hold at a window's end goes up by what came in and down by what left. They are empty
# when their broker starts anew, so they may have less; they never have more.
_ENTRIES_FROM_NOWHERE = f"""
SELECT * FROM (
  SELECT *, lag(entries) OVER w AS entries_before,
    lag(window_start_ms + window_ms) OVER w AS ended_ms
  FROM ({_sums("NULL")}) WINDOW w AS (PARTITION BY {_POLICY} ORDER BY window_start_ms)
) AS levels
WHERE ended_ms = window_start_ms
  AND entries > entries_before + inserted - evicted_time - evicted_size - invalidated
"""
# One pass frees until enough is gone, so an entry that goes by size finds the cache above its
# trigger, or a part of that pass behind it.
_SIZE_WITHOUT_NEED = f"""
SELECT * FROM (
  SELECT *, max(used_bytes_before) OVER (PARTITION BY {_POLICY}, max_bytes, ts_mono_ns) AS most_used
  FROM {{batch}} WHERE cause = 'size'
) AS passes
WHERE most_used <= CAST(floor(CAST(max_bytes AS DOUBLE) * {TRIGGER}) AS BIGINT)
"""

SUITES: dict[str, list[AuditCheck]] = {
    "cache_stats": suite(
        "cache_stats",
        rows_that("hit_ratio is hits / reads", _RATIO_AMISS),
        rows_that(
            "only a broker's row has what only a broker has",
            " OR ".join(f"({column} IS NULL) <> (topic IS NOT NULL)" for column in _OF_BROKER),
        ),
        rows_that(
            "what is wanted is not evictable, and what is used holds both",
            "wanted_bytes > non_evictable_bytes OR non_evictable_bytes > used_bytes",
        ),
        rows_that("an empty cache has no bytes", "entries = 0 AND used_bytes <> 0"),
        rows_that(
            "no more is evicted wanted than is evicted",
            "evicted_wanted > evicted_time + evicted_size",
        ),
        rows_that(
            "the most used bytes of a window are not below those at its end",
            "max_used_bytes < used_bytes",
        ),
        rows_that(
            "a cache ends its window within its trigger",
            "topic IS NULL AND policy <> 'expected_reads_stash'"
            f" AND used_bytes > CAST(floor(CAST(max_bytes AS DOUBLE) * {TRIGGER}) AS BIGINT)",
        ),
        rows_that(
            "a window is written at its end",
            "ts_wall_ms <> window_start_ms + window_ms OR rule <> 'window'",
        ),
        no_rows("a broker's row is the sum of its topics", _BROKER_UNLIKE_TOPICS),
        no_rows("a cache holds what came in and has not left", _ENTRIES_FROM_NOWHERE),
    ),
    "cache_evictions": suite(
        "cache_evictions",
        rows_that("a rule is its cause, with what was amiss", _RULE_AMISS),
        rows_that("an entry is part of what was used", "entry_bytes > used_bytes_before"),
        rows_that(
            "nothing goes by size without a size check", "cause = 'size' AND max_bytes IS NULL"
        ),
        no_rows("what goes by size goes above the trigger", _SIZE_WITHOUT_NEED),
    ),
    "cache_reads": suite(
        "cache_reads",
        rows_that(
            "a rule says whether it was a hit",
            "CASE WHEN rule <> 'unknown' THEN rule = 'hit' END IS DISTINCT FROM hit",
        ),
        rows_that(
            "positions are ledger:entry", "NOT regexp_matches(position, '^-?[0-9]+:-?[0-9]+$')"
        ),
    ),
}
ACROSS: dict[str, list[AuditCheck]] = {
    "cache_stats": [
        no_rows("hits and misses are the reads of the window", _WINDOW_UNLIKE_READS, "cache_reads"),
        no_rows("a window counts its evictions", _WINDOW_UNLIKE_EVICTIONS, "cache_evictions"),
    ],
}
