"""What the summary of a report says of the cache: the reads that it would have answered."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from app.show.report.model import Finding, JobFindings
from app.terminal.phrases import Row, number_of
from app.terminal.sizes import size_text

if TYPE_CHECKING:
    from app.show.report.report_reader import ReportReader

TOTALS = """
SELECT policy, max_bytes, CAST(NULL AS VARCHAR) AS topic, CAST(sum(hits) AS BIGINT) AS hits,
  CAST(sum(misses) AS BIGINT) AS misses, CAST(sum(miss_bytes) AS BIGINT) AS miss_bytes
FROM cache_stats WHERE topic IS NULL GROUP BY policy, max_bytes
"""


def cache_sentence(rows: Iterable[Row]) -> str | None:
    """The reads that the cache would have answered, from rows of cache_stats or one row for each
    policy and size; None without a read. Of several sizes it describes the one at which the
    policies differ most."""
    found: dict[int | None, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for row in rows:
        if row.get("topic") is None:  # those of topics are in those of their broker
            counts = found[row["max_bytes"]][row["policy"]]
            counts.update({name: row[name] for name in ("hits", "misses", "miss_bytes")})
    read = {
        size: {policy: c for policy, c in policies.items() if c["hits"] + c["misses"]}
        for size, policies in found.items()
    }
    read = {size: policies for size, policies in read.items() if policies}
    if not read:
        return None
    size = max(read, key=lambda s: (_spread(read[s]), -1 if s is None else s))
    ranked = sorted(read[size].items(), key=lambda item: (-_hit_ratio(item[1]), item[0]))
    best, counts = ranked[0]
    reads = number_of(counts["hits"] + counts["misses"], "read")
    cache = "A cache without a size limit" if size is None else f"A cache of {size_text(size)}"
    others = ", ".join(f"{policy} {_percent(c)}" for policy, c in ranked[1:])
    storage = size_text(counts["miss_bytes"])
    if others:
        storage += f" instead of {size_text(ranked[-1][1]['miss_bytes'])}"
    return (
        f"{cache} would have answered {_percent(counts)} of {reads} under {best}"
        f"{' (' + others + ')' if others else ''}; {storage} would have come from storage."
    )


def _hit_ratio(counts: Mapping[str, int]) -> float:
    return counts["hits"] / (counts["hits"] + counts["misses"])


def _spread(policies: Mapping[str, Mapping[str, int]]) -> float:
    ratios = [_hit_ratio(counts) for counts in policies.values()]
    return max(ratios) - min(ratios)


def _percent(counts: Mapping[str, int]) -> str:
    return f"{100 * _hit_ratio(counts):.1f} %"


def _findings(reader: ReportReader) -> list[Finding]:
    cached = cache_sentence(reader.rows(TOTALS))
    return [] if cached is None else [Finding(cached)]


FINDINGS = (JobFindings(50, _findings),)
