"""Which alerts fire, and which did."""

from __future__ import annotations

from app.report.model import Column, Grid, Section
from app.report.reader import Reader
from app.report.words import counted

TOP = 20
LATEST = """
WITH ranked AS (
  SELECT *, row_number() OVER (
      PARTITION BY alert, labels ORDER BY number DESC NULLS LAST, at_ms DESC, checked_ms DESC
    ) AS place FROM alerts
)
SELECT alert, state, severity, summary, at_ms, since_ms, value, runbook FROM ranked
WHERE place = 1
ORDER BY CASE state WHEN 'firing' THEN 0 WHEN 'pending' THEN 1 ELSE 2 END, at_ms DESC, alert,
  summary
"""


def alerting(reader: Reader) -> Section:
    """The state of every alert that ever changed, those that fire first."""
    key, title = "alerts", "Alerts"
    rows = reader.rows(LATEST)
    if not rows:
        return Section(key, title, [
            f"{reader.nothing_in('alerts')} The command alerts check judges the rules."])
    firing = [row for row in rows if row["state"] == "firing"]
    says = [f"{counted(len(firing), 'alert')} {'fires' if len(firing) == 1 else 'fire'}."
            if firing else "No alert fires."]
    return Section(key, title, says, [Grid("Alerts, those that fire first", [
        Column("state", "state"), Column("severity", "severity"), Column("alert", "rule"),
        Column("summary", "what happened"), Column("at_ms", "at", "time"),
        Column("runbook", "what to do"),
    ], rows[:TOP], '"FROM alerts ORDER BY at_ms DESC"')])
