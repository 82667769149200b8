"""The view that compares the tables of shadow policies with the live tables."""

from __future__ import annotations

from state.engine.table import SHADOW

_SOURCES = ("topic_throttle_stats", "producer_id_decisions", "backlog_checks")
"""By job, the table that shows the times that a shadow has judged."""
_PAUSED = (
    "CAST(culprit_ns AS DOUBLE) + CAST(coalesce(shared_ns, 0) AS DOUBLE)"
    " + CAST(collateral_ns AS DOUBLE)"
)
_OVER = "exceeded_size OR exceeded_time"
MEASURES = {
    "pauses": ("topic_throttle_stats", 0, "CAST(limited_times AS DOUBLE)", "limited_times > 0"),
    "paused_s": ("topic_throttle_stats", 0, f"({_PAUSED}) / 1e9", f"{_PAUSED} > 0"),
    "victim_s": (
        "topic_throttle_stats",
        0,
        "CAST(collateral_ns AS DOUBLE) / 1e9",
        "collateral_ns > 0",
    ),
    "throttled_ids": ("producer_id_decisions", 1, "CAST(1 AS DOUBLE)", "verdict = 'throttled'"),
    "rejected_ids": ("producer_id_decisions", 1, "CAST(1 AS DOUBLE)", "verdict = 'rejected'"),
    "checks_over_quota": ("backlog_checks", 2, "CAST(1 AS DOUBLE)", _OVER),
    "evicted_entries": (
        "backlog_evictions",
        2,
        "CAST(entries_skipped AS DOUBLE)",
        "entries_skipped > 0",
    ),
    "refused_producers": ("producer_refusals", 2, "CAST(1 AS DOUBLE)", "true"),
}
"""By measure: its table, the source of its time, the amount of a row, and the condition on rows."""
READS = tuple(
    dict.fromkeys(
        name
        for table in (*_SOURCES, *(table for table, *_ in MEASURES.values()))
        for name in (table, SHADOW + table)
    )
)


def _span(source: int, table: str) -> str:
    return (
        f"  SELECT s.policy, s.cluster, {source} AS source, s.first_ms,"
        " least(s.last_ms, t.last_ms) AS last_ms FROM (\n"
        "    SELECT policy, cluster, min(ts_wall_ms) AS first_ms, max(ts_wall_ms) AS last_ms"
        f" FROM {SHADOW}{table} GROUP BY policy, cluster\n"
        "  ) AS s JOIN (\n"
        f"    SELECT cluster, max(ts_wall_ms) AS last_ms FROM {table} GROUP BY cluster\n"
        "  ) AS t ON t.cluster = s.cluster"
    )


def _rows(measure: str, table: str, source: int, amount: str, where: str, live: bool) -> str:
    name = "user" if source == 1 else "topic"
    zero = "CAST(0 AS DOUBLE)"
    both = f"{amount} AS live, {zero} AS shadow" if live else f"{zero} AS live, {amount} AS shadow"
    whose = "" if live else " AND s.policy = t.policy"
    return (
        f"SELECT s.policy, t.cluster, t.broker, t.{name} AS name, t.ts_wall_ms AS at_ms,"
        f" '{measure}' AS measure, {both}\n"
        f"FROM {'' if live else SHADOW}{table} AS t JOIN spans AS s ON s.source = {source}"
        f" AND s.cluster = t.cluster{whose}\n"
        f"  AND t.ts_wall_ms >= s.first_ms AND t.ts_wall_ms <= s.last_ms\nWHERE {where}"
    )


EFFECTS = "\n".join(
    [
        "WITH spans AS (",
        "\n  UNION ALL\n".join(_span(i, table) for i, table in enumerate(_SOURCES)),
        ")",
        "\nUNION ALL\n".join(
            _rows(measure, *of, live) for measure, of in MEASURES.items() for live in (True, False)
        ),
    ]
)
