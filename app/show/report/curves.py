"""The value of a fact over the time that a page shows, as a small curve and in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import duckdb

from app.config.alerts import AlertSettings
from app.show.alerts.rule_files import told_of
from app.show.report.model import Row
from app.show.report.report_reader import ReportReader, ReportSpan
from app.terminal.amounts import number_text
from app.terminal.templates import text_of

WIDTH, HEIGHT = 100, 20
_VALUES = """
SELECT {labels}min(greatest(start_ms, $begin)) AS start_ms, max(least(end_ms, $end)) AS end_ms,
  CAST(max(value) AS DOUBLE) AS value
FROM ({sql}
) WHERE end_ms > $begin AND start_ms < $end AND isfinite(CAST(value AS DOUBLE))
GROUP BY {labels}(greatest(start_ms, $begin) - $begin) // $step ORDER BY start_ms
"""


class Curves:
    """The curves of alerts by the SQL of their rules, each of which is asked once."""

    def __init__(self, reader: ReportReader, alerts: AlertSettings | None) -> None:
        self._reader, self._rules = reader, told_of(alerts)
        self._limit_ms = (alerts or AlertSettings()).query_timeout_ms
        self._values = cache(self._asked)

    def of(self, alert: str, labels: Mapping[str, str]) -> Row | None:
        """The curve of an alert: `path` in a frame of WIDTH and HEIGHT, and `text`; None without."""
        rows = self._values(alert, tuple(labels)).get(tuple(labels.values()))
        span = self._reader.span
        return curve(rows, span) if rows and span else None

    def _asked(self, alert: str, names: tuple[str, ...]) -> dict[tuple[str, ...], list[Row]]:
        found: dict[tuple[str, ...], list[Row]] = {}
        span, rule = self._reader.span, self._rules.get(alert)
        if span is None or rule is None:
            return found
        labels = "".join('"{}", '.format(name.replace('"', '""')) for name in names)
        sql = _VALUES.format(labels=labels, sql=rule.sql.rstrip().rstrip(";"))
        values = {"begin": span.start_ms, "end": span.end_ms, "step": self._reader.step_ms()}
        try:
            _, rows = self._reader.of_rule(sql, values, self._limit_ms)
        except duckdb.Error:  # a rule of another time: its alert is there, its columns are not
            rows = []
        for row in rows:
            found.setdefault(tuple(text_of(row[name]) for name in names), []).append(row)
        return found


def curve(rows: Sequence[Row], span: ReportSpan) -> Row:
    """The curve of some ranges of time and their values, in order."""
    values = [row["value"] for row in rows]
    low, high = min(values), max(values)
    scale = WIDTH / (span.end_ms - span.start_ms)
    steps, until = [], None
    for row in rows:
        x, end = (round((row[at] - span.start_ms) * scale, 1) for at in ("start_ms", "end_ms"))
        y = round(HEIGHT - 1 - (HEIGHT - 2) * ((row["value"] - low) / (high - low or 1)), 1)
        steps.append(f"V{y}H{end}" if until is not None and x <= until else f"M{x} {y}H{end}")
        until = end
    named = (("lowest", low), ("highest", high), ("latest", values[-1]))
    text = ", ".join(f"{name} {number_text(value)}" for name, value in named)
    return {"path": "".join(steps), "text": text}
