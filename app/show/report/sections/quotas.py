"""Every quota of every job, side by side."""

from __future__ import annotations

from app.show.report.charts import limit_mark, plain_bars
from app.show.report.model import Chart, Grid, GridColumn, ReportSection, Tile, filled
from app.show.report.report_reader import ReportReader
from app.terminal.amounts import percent_text
from app.terminal.counts import counted
from app.terminal.phrases import short, was

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


def quotas(reader: ReportReader) -> ReportSection:
    """Quotas that were breached, and those that were nearest to it."""
    key, title = "quotas", "Quotas"
    summary = reader.row(_SUMMARY)
    breaches = summary["breached"]
    tile = Tile("quotas breached", f"{breaches:,}", f"of {summary['quotas']:,}", bool(breaches))
    if not summary["quotas"]:
        why = reader.nothing_in("limiter_stats", "producer_id_stats", "backlog_checks")
        return ReportSection(key, title, [why], tile=tile)
    nearest = [
        {
            "name": f"{row['broker']} {row['kind']} {short(row['entity'])}",
            "value": 100 * row["peak"],
            "text": percent_text(row["peak"]),
        }
        for row in reader.rows(_NEAREST, most=TOP)
    ]
    texts = [
        f"{breaches:,} of {counted(summary['quotas'], 'quota')} {was(breaches)} "
        "breached at least once. "
        "Rates are per second."
    ]
    parts = [
        *filled(
            Chart(
                "Highest use",
                "As a share of the limit. Of a publish rate, within a second: what the limiter's "
                "bucket lacked of full at its lowest balance. Of the others, in a window or at a "
                "check.",
                nearest,
                lambda rows, frame: plain_bars(rows, frame, "% of the limit") + limit_mark(100),
            )
        ),
        Grid(
            "Breached quotas",
            [
                GridColumn("entity", "of", "topic"),
                GridColumn("kind", "quota"),
                GridColumn("broker", "broker"),
                GridColumn("breaches", "windows", "number"),
                GridColumn("highest_ratio", "highest use", "ratio"),
                GridColumn("newest_limit", "limit", "number"),
                GridColumn("first_window", "first", "time"),
                GridColumn("last_window", "last", "time"),
            ],
            reader.ask("breached-quotas", TOP),
            "breached-quotas",
            folded=True,
        ),
        *filled(
            Grid(
                "Shadow policies beside the live ones, largest differences",
                [
                    GridColumn("policy", "shadow"),
                    GridColumn("name", "of", "topic"),
                    GridColumn("measure", "what"),
                    GridColumn("live", "live", "number"),
                    GridColumn("shadow", "under the shadow", "number"),
                    GridColumn("difference", "difference", "number"),
                ],
                reader.ask("shadow", TOP),
                "shadow",
                folded=True,
            ),
            Grid(
                "What is reached next, the soonest first",
                [
                    GridColumn("breach", "reached", "time"),
                    GridColumn("breached", "breached", "flag"),
                    GridColumn("kind", "quota"),
                    GridColumn("entity", "of", "topic"),
                    GridColumn("partition", "partition"),
                    GridColumn("group_or_subscription", "group or subscription"),
                    GridColumn("highest", "use", "ratio"),
                    GridColumn("predicted", "highest use of the day", "ratio"),
                    GridColumn("mean_error", "mean error", "ratio"),
                ],
                reader.ask("forecasts", TOP),
                "forecasts",
                folded=True,
            ),
        ),
    ]
    verdict = f"{counted(breaches, 'quota')} {was(breaches)} breached" if breaches else ""
    return ReportSection(key, title, texts, parts, tile, verdict)
