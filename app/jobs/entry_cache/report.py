"""Hit ratios of the cache, and of other sizes and policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.jobs.entry_cache.findings import TOTALS, cache_sentence
from app.show.report.charts import curves, lines
from app.show.report.model import (
    Chart,
    Grid,
    GridColumn,
    JobSection,
    ReportSection,
    Row,
    Tile,
    filled,
)
from app.show.report.text import time_text
from app.terminal.amounts import NONE, percent_text

if TYPE_CHECKING:
    from app.show.report.report_reader import ReportReader

LINES = 6
TOP = 12

_OVER_TIME = """
WITH best AS (
  SELECT cluster, broker, policy, max_bytes, sum(hits + misses) AS reads FROM cache_stats
  WHERE topic IS NULL GROUP BY cluster, broker, policy, max_bytes HAVING sum(hits + misses) > 0
  ORDER BY reads DESC, cluster, broker, policy, max_bytes LIMIT $lines
)
SELECT concat(s.broker, ' ', s.policy) AS name,
  s.window_start_ms - s.window_start_ms % $step AS slot,
  max(s.window_start_ms + s.window_ms) AS at, 100 * sum(s.hits) / sum(s.hits + s.misses) AS value
FROM cache_stats AS s JOIN best AS b ON b.cluster = s.cluster AND b.broker = s.broker
  AND b.policy = s.policy AND b.max_bytes IS NOT DISTINCT FROM s.max_bytes
WHERE s.topic IS NULL
GROUP BY s.cluster, s.broker, s.policy, s.max_bytes, slot, b.reads
HAVING sum(s.hits + s.misses) > 0 ORDER BY b.reads DESC, name, "at"
"""
# Rows of settings of their own are curves of their own; those of all brokers have no cluster.
_CURVES = """
SELECT policy, settings, max_bytes AS bytes, 100 * hit_ratio AS value, compared_ms
FROM cache_bakeoff
WHERE cluster IS NULL AND hit_ratio IS NOT NULL
  AND compared_ms = (SELECT max(compared_ms) FROM cache_bakeoff)
ORDER BY policy, CAST(settings AS VARCHAR), max_bytes
"""


def cache(reader: ReportReader) -> ReportSection:
    """Hit ratio over time, and hit ratio against size for every policy."""
    key, title = "cache", "Cache"
    totals = reader.rows(TOTALS)
    texts: list[str] = []
    parts: list[Chart | Grid] = []
    if totals:
        texts.append(cache_sentence(totals) or "No reads were made of the cache.")
        over_time = reader.rows(_OVER_TIME, lines=LINES, step=reader.step_ms())
        parts = [
            *filled(
                Chart(
                    "Hit ratio over time",
                    "Reads that found their entry, by broker and policy.",
                    over_time,
                    lambda rows, frame: lines(rows, frame, "hits (%)"),
                )
            ),
            Grid(
                "By policy and size",
                [
                    GridColumn("policy", "policy"),
                    GridColumn("settings", "settings"),
                    GridColumn("max_bytes", "size", "bytes"),
                    GridColumn("hits", "hits", "number"),
                    GridColumn("misses", "misses", "number"),
                    GridColumn("hit_ratio", "hit ratio", "ratio"),
                    GridColumn("hit_ratio_bytes", "of bytes", "ratio"),
                    GridColumn("evicted_wanted", "evicted, still expected", "number"),
                    GridColumn("max_used_bytes", "most used", "bytes"),
                ],
                [_exact(row) for row in reader.ask("cache-hit-ratio", TOP)],
                "cache-hit-ratio",
                folded=True,
            ),
        ]
    else:
        texts.append(reader.nothing_in("cache_stats"))
    compared = [{"name": _curve(row), **row} for row in reader.rows(_CURVES)]
    if compared:
        texts.append(_comparison(compared))
        parts.append(
            Chart(
                "Cache curves",
                "Reads that each policy would answer at each size. belady knows all "
                "future reads: the bound where entries have one size, beatable where sizes are mixed.",
                compared,
                curves,
            )
        )
    else:
        texts.append(f"{reader.nothing_in('cache_bakeoff')} The command bakeoff draws curves.")
    return ReportSection(key, title, texts, parts, _tile(totals))


def _tile(totals: Sequence[Row]) -> Tile:
    hits = sum(row["hits"] for row in totals)
    reads = hits + sum(row["misses"] for row in totals)
    return Tile(
        "reads from cache",
        percent_text(hits / reads) if reads else NONE,
        "" if reads else "no reads seen",
    )


def _comparison(compared: list[Row]) -> str:
    policies = len({row["name"] for row in compared})
    sizes = len({row["bytes"] for row in compared})
    return (
        f"{policies} policies were compared at {sizes} sizes on "
        f"{time_text(compared[0]['compared_ms'])}."
    )


def _exact(row: Row) -> Row:
    """A row of the question with its unrounded hit ratio."""
    reads = row["hits"] + row["misses"]
    return {**row, "hit_ratio": row["hits"] / reads if reads else None}


def _curve(row: Row) -> str:
    """The name of a curve: its policy and its own settings."""
    own = sorted((row.pop("settings") or {}).items())
    return " ".join([row["policy"], *(f"{name}={value}" for name, value in own)])


SECTIONS = (JobSection(90, cache, ("cache_stats", "cache_bakeoff")),)
REACHED = ("cache_stats",)
