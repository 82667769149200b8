"""Which alerts fire, and which did."""

from __future__ import annotations

from app.show.report.curves import Curves
from app.show.report.model import Grid, GridColumn, ReportSection, Row, Tile, filled
from app.show.report.report_reader import ReportReader
from app.show.report.text import explained
from app.terminal.amounts import NONE
from app.terminal.counts import counted

TOP = 20
_LATEST = """
WITH ranked AS (
  SELECT *, row_number() OVER newest AS place,
    lag(at_ms) OVER newest AS until_ms
  FROM alerts
  WINDOW newest AS (
    PARTITION BY alert, labels ORDER BY number DESC NULLS LAST, at_ms DESC, checked_ms DESC)
), fired AS (
  SELECT alert, labels, list([at_ms, until_ms] ORDER BY at_ms) AS fired FROM ranked
  WHERE state = 'firing' GROUP BY alert, labels
)
SELECT alert, labels, state, severity, summary, at_ms, since_ms, value, runbook, fired
FROM ranked LEFT JOIN fired USING (alert, labels)
WHERE place = 1
ORDER BY CASE state WHEN 'firing' THEN 0 WHEN 'pending' THEN 1 ELSE 2 END,
  CASE severity WHEN 'critical' THEN 0 WHEN 'warning' THEN 2 WHEN 'info' THEN 3 ELSE 1 END,
  at_ms DESC, alert, summary
"""


def alerting(reader: ReportReader, curves: Curves | None = None) -> ReportSection:
    """Alerts that fire, critical first, with their curves, and folded those that do not."""
    key, title = "alerts", "Alerts"
    rows = reader.rows(_LATEST)
    if not rows:
        return ReportSection(
            key,
            title,
            [f"{reader.nothing_in('alerts')} The command alerts check evaluates the rules."],
            tile=Tile("alerts firing", NONE, "none evaluated yet"),
        )
    for row in rows:
        labels = row.pop("labels")
        row["explain"] = explained(labels, row["since_ms"])
        row["team"] = reader.team(labels)
        if curves is not None and row["state"] == "firing":
            row["curve"] = curves.of(row["alert"], labels)
    firing = [row for row in rows if row["state"] == "firing"]
    verdict = (
        f"{counted(len(firing), 'alert')} {'fires' if len(firing) == 1 else 'fire'}"
        if firing
        else ""
    )
    texts = [f"{verdict}." if firing else "No alert fires."]
    tile = Tile("alerts firing", str(len(firing)), bad=bool(firing))
    columns = [
        GridColumn("severity", "severity"),
        GridColumn("alert", "rule"),
        GridColumn("summary", "what happened", "told"),
        GridColumn("since_ms", "since", "time"),
        GridColumn("fired", "last hour", "hour"),
        GridColumn("fired", "last day", "day"),
        *([GridColumn("team", "owner")] if any(row["team"] for row in firing) else []),
        GridColumn("runbook", "what to do", "runbook"),
    ]
    others = [row for row in rows if row["state"] != "firing"]
    every_alert = '"FROM alerts ORDER BY at_ms DESC"'
    parts = filled(
        Grid(
            _titled("Firing, critical first", firing),
            [*columns, *([GridColumn("curve", "value", "curve")] if curves else [])],
            firing[:TOP],
            every_alert,
        ),
        Grid(
            _titled(f"{counted(len(others), 'alert')} not firing", others),
            [GridColumn("state", "state"), *columns],
            others[:TOP],
            every_alert,
            folded=True,
        ),
    )
    return ReportSection(key, title, texts, parts, tile, verdict)


def _titled(title: str, rows: list[Row]) -> str:
    return title if len(rows) <= TOP else f"{title}: {TOP} of {len(rows):,}"
