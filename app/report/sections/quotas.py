"""Every quota of every job, side by side."""

from __future__ import annotations

from app.report.charts import limit_mark, plain_bars
from app.report.model import Chart, Column, Grid, Section, Tile
from app.report.phrases import short, was
from app.report.reader import Reader
from app.report.text import percent_text
from app.terminal.counts import counted

TOP = 8
_SUMMARY = """
SELECT count(DISTINCT (kind, cluster, broker, entity)) AS quotas,
  count(DISTINCT (kind, cluster, broker, entity)) FILTER (WHERE breached) AS breached
FROM quota_usage
"""
_NEAREST = """
SELECT kind, cluster, broker, entity, max(peak) AS peak FROM quota_usage
WHERE peak IS NOT NULL GROUP BY kind, cluster, broker, entity
ORDER BY peak DESC, kind, cluster, broker, entity LIMIT $most
"""


def quotas(reader: Reader) -> Section:
    """Quotas that were breached, and those that were nearest to it."""
    key, title = "quotas", "Quotas"
    summary = reader.row(_SUMMARY)
    breaches = summary["breached"]
    tile = Tile("quotas breached", f"{breaches:,}", f"of {summary['quotas']:,}", bool(breaches))
    if not summary["quotas"]:
        why = reader.nothing_in("limiter_stats", "producer_id_stats", "backlog_checks")
        return Section(key, title, [why], tile=tile)
    nearest = [
        {
            "name": f"{row['broker']} {row['kind']} {short(row['entity'])}",
            "value": 100 * row["peak"],
            "text": percent_text(row["peak"]),
        }
        for row in reader.rows(_NEAREST, most=TOP)
    ]
    breached = reader.ask("breached-quotas", TOP)
    texts = [
        f"{breaches:,} of {counted(summary['quotas'], 'quota')} {was(breaches)} "
        "breached at least once. "
        "Rates are per second."
    ]
    parts: list[Chart | Grid] = []
    if nearest:
        parts.append(
            Chart(
                "Highest use",
                "As a share of the limit. Of a publish rate, within a second: what the limiter's "
                "bucket lacked of full at its lowest balance. Of the others, in a window or at a "
                "check.",
                nearest,
                lambda rows, frame: plain_bars(rows, frame, "% of the limit") + limit_mark(100),
            )
        )
    parts.append(
        Grid(
            "Breached quotas",
            [
                Column("entity", "of", "topic"),
                Column("kind", "quota"),
                Column("broker", "broker"),
                Column("breaches", "windows", "number"),
                Column("highest_ratio", "highest use", "ratio"),
                Column("newest_limit", "limit", "number"),
                Column("first_window", "first", "time"),
                Column("last_window", "last", "time"),
            ],
            breached,
            "breached-quotas",
            folded=True,
        )
    )
    if shadows := reader.ask("shadow", TOP):
        parts.append(
            Grid(
                "Shadow policies beside the live ones, largest differences",
                [
                    Column("policy", "shadow"),
                    Column("name", "of", "topic"),
                    Column("measure", "what"),
                    Column("live", "live", "number"),
                    Column("shadow", "under the shadow", "number"),
                    Column("difference", "difference", "number"),
                ],
                shadows,
                "shadow",
                folded=True,
            )
        )
    verdict = f"{counted(breaches, 'quota')} {was(breaches)} breached" if breaches else ""
    return Section(key, title, texts, [*parts, *_forecasts(reader)], tile, verdict)


def _forecasts(reader: Reader) -> list[Grid]:
    """Limits by when they are reached, if that was forecast."""
    found = reader.ask("forecasts", TOP)
    if not found:
        return []
    return [
        Grid(
            "Forecasts, the soonest breaches first",
            [
                Column("entity", "of", "topic"),
                Column("kind", "quota"),
                Column("breached", "breached", "flag"),
                Column("breach", "reached", "time"),
                Column("method", "method"),
                Column("predicted", "highest use of the day", "ratio"),
                Column("by", "to", "time"),
                Column("mean_error", "mean error", "ratio"),
                Column("worst_error", "worst", "ratio"),
                Column("tests", "of forecasts", "number"),
                Column("reason", "none for"),
            ],
            found,
            "forecasts",
            folded=True,
        )
    ]
