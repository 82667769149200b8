"""How old backlogs are, which quota they broke, and which they will."""

from __future__ import annotations

from collections.abc import Sequence

from app.show.report.charts import limit_rule, lines
from app.show.report.model import Chart, Grid, GridColumn, ReportSection, Row, Tile, filled
from app.show.report.report_reader import ReportReader
from app.terminal.amounts import NONE
from app.terminal.counts import counted
from app.terminal.phrases import short

LINES = 6
TOP = 12
AHEAD = 6
"""Subscriptions that are listed by what lies ahead."""
AHEAD_MS = 3_600_000
"""Forecasts reach so far beyond the last check, or for as long as the report covers."""

_SUMMARY = """
WITH ranked AS (
  SELECT *, row_number() OVER (
      PARTITION BY cluster, topic ORDER BY pass_ms DESC, ts_wall_ms DESC, row_no DESC) AS place
  FROM backlog_checks
)
SELECT count(DISTINCT (cluster, topic)) AS topics,
  count(DISTINCT (cluster, topic)) FILTER (WHERE exceeded_size OR exceeded_time) AS over,
  count(*) FILTER (WHERE place = 1 AND (exceeded_size OR exceeded_time)) AS still_over,
  max(age_s) FILTER (WHERE place = 1) AS oldest_s
FROM ranked
"""
_SOON = """
SELECT count(DISTINCT (cluster, topic)) AS topics FROM backlog_quota_predictions
WHERE pass_ms = newest_ms
"""
_SERIES = """
WITH best AS (
  SELECT cluster, topic, max({value}) AS top FROM backlog_checks
  GROUP BY cluster, topic HAVING max({value}) > 0
  ORDER BY top DESC, cluster, topic LIMIT $lines
)
SELECT c.cluster, c.topic, c.pass_ms - c.pass_ms % $step AS slot,
  arg_max(c.pass_ms, coalesce({value}, 0)) AS at, max(coalesce({value}, 0)) AS value
FROM backlog_checks AS c JOIN best AS b USING (cluster, topic)
GROUP BY c.cluster, c.topic, slot, b.top ORDER BY b.top DESC, c.cluster, c.topic, "at"
"""
_USAGE = "greatest(size_usage, time_usage)"
_AHEAD = """
WITH ranked AS (
  SELECT *, row_number() OVER (
      PARTITION BY cluster, topic, subscription
      ORDER BY pass_ms DESC, ts_wall_ms DESC, row_no DESC) AS place
  FROM backlog_subscriptions
)
SELECT cluster, topic, subscription, backlog_entries, backlog_bytes, age_s, growth_rate,
  drain_rate, time_to_drain_s, time_to_quota_s,
  CASE WHEN time_to_quota_s IS NOT NULL
    THEN pass_ms + CAST(least(time_to_quota_s, 1e9) * 1000 AS BIGINT) END AS expected_ms
FROM ranked WHERE place = 1 AND (backlog_bytes > 0 OR age_s > 0)
ORDER BY time_to_quota_s NULLS LAST, age_s DESC NULLS LAST, cluster, topic, subscription
LIMIT $most
"""


def backlogs(reader: ReportReader) -> ReportSection:
    """Ages and sizes against their quotas, with forecasts."""
    key, title = "backlogs", "Backlogs"
    summary = reader.row(_SUMMARY)
    if not summary["topics"]:
        tile = Tile("backlogs over quota", NONE, "none checked")
        return ReportSection(key, title, [reader.nothing_in("backlog_checks")], tile=tile)
    ahead = reader.rows(_AHEAD, most=500)
    over = summary["over"]
    texts = [
        f"{over:,} of {counted(summary['topics'], 'topic')} {'was' if over == 1 else 'were'} "
        f"over a quota of the backlog; {summary['still_over']:,} still "
        f"{'is' if summary['still_over'] == 1 else 'are'} at the last check."
    ]
    usage = _with_forecasts(_series(reader, _USAGE), ahead, reader)
    parts = [
        *filled(
            Chart(
                "Use of the nearer quota, and where it goes",
                "Size or age as a share of its limit, by check. Dotted: the forecast; a diamond is "
                "where a subscription's backlog will reach the quota if it goes on like this.",
                usage,
                lambda rows, frame: lines(rows, frame, "% of the quota") + limit_rule(100),
            ),
            Chart(
                "Age of the oldest message",
                "Seconds that the oldest unacknowledged message waited.",
                _series(reader, "greatest(age_s, 0)"),
                lambda rows, frame: lines(rows, frame, "age (s)"),
            ),
        ),
        Grid(
            "What lies ahead, the soonest first",
            [
                GridColumn("topic", "topic", "topic"),
                GridColumn("subscription", "subscription"),
                GridColumn("age_s", "oldest", "seconds"),
                GridColumn("backlog_bytes", "size", "bytes"),
                GridColumn("growth_rate", "grows by (bytes)", "rate"),
                GridColumn("time_to_drain_s", "drained in", "seconds"),
                GridColumn("time_to_quota_s", "quota in", "seconds"),
                GridColumn("expected_ms", "at", "time"),
            ],
            ahead[:AHEAD],
            "forecasts",
        ),
        *_actions(reader),
    ]
    soon = reader.row(_SOON)["topics"]
    tile = Tile("backlogs over quota", f"{over:,}", f"{soon:,} more within the hour", bool(over))
    return ReportSection(key, title, texts, parts, tile)


def _series(reader: ReportReader, value: str) -> list[Row]:
    # Of the checks of a step a line shows that with the highest value.
    rows = reader.rows(_SERIES.format(value=value), lines=LINES, step=reader.step_ms())
    scale = 100 if value == _USAGE else 1
    return [
        {"name": short(row["topic"]), "at": row["at"], "value": row["value"] * scale}
        for row in rows
    ]


def _with_forecasts(series: list[Row], ahead: Sequence[Row], reader: ReportReader) -> list[Row]:
    """The lines, each with the way from its last point to its quota where that is near."""
    if reader.span is None:
        return series
    until = reader.span.end_ms + max(AHEAD_MS, reader.span.end_ms - reader.span.start_ms)
    last = {row["name"]: row for row in series}
    soonest: dict[str, int] = {}
    for row in ahead:
        left, at = row["time_to_quota_s"], row["expected_ms"]
        if left and at is not None and at <= until:
            soonest.setdefault(short(row["topic"]), at)
    forecasts = [
        {**row, "forecast": True, "arrives": arrives}
        for name, at in soonest.items()
        if name in last and last[name]["value"] < 100
        for row, arrives in ((last[name], False), ({"name": name, "at": at, "value": 100.0}, True))
    ]
    return series + forecasts


def _actions(reader: ReportReader) -> list[Grid | Chart]:
    evicted = reader.rows(
        "SELECT cluster, topic, subscription, quota_type, count(*) AS evictions,"
        " sum(entries_skipped) AS entries, max(ts_wall_ms) AS newest FROM backlog_evictions"
        " GROUP BY ALL ORDER BY entries DESC, cluster, topic, subscription LIMIT $most",
        most=TOP,
    )
    refused = reader.rows(
        "SELECT cluster, topic, quota_type, error, count(*) AS producers,"
        " max(ts_wall_ms) AS newest FROM producer_refusals GROUP BY ALL"
        " ORDER BY producers DESC, cluster, topic LIMIT $most",
        most=TOP,
    )
    topic, newest = GridColumn("topic", "topic", "topic"), GridColumn("newest", "newest", "time")
    return filled(
        Grid(
            "What the quota evicts",
            [
                topic,
                GridColumn("subscription", "subscription"),
                GridColumn("quota_type", "quota"),
                GridColumn("evictions", "evictions", "number"),
                GridColumn("entries", "entries", "number"),
                newest,
            ],
            evicted,
            '"FROM backlog_evictions"',
            folded=True,
        ),
        Grid(
            "Producers that are refused",
            [
                topic,
                GridColumn("quota_type", "quota"),
                GridColumn("error", "error"),
                GridColumn("producers", "producers", "number"),
                newest,
            ],
            refused,
            '"FROM producer_refusals"',
            folded=True,
        ),
    )
