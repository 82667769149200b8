"""Kafka groups: lag, what they lost, and the states that need somebody."""

from __future__ import annotations

from app.show.report.model import Grid, GridColumn, ReportSection, Row, Tile, filled
from app.show.report.report_reader import ReportReader
from app.terminal.counts import counted

TOP = 12
_SUMMARY = """
SELECT count(DISTINCT (cluster, "group")) AS groups,
  count(*) FILTER (WHERE lag > 0 AND coalesce(lag_records, 1) > 0) AS behind,
  count(*) FILTER (WHERE state = 'ahead') AS ahead,
  count(*) FILTER (WHERE state IN ('open_transaction', 'pending_offsets')) AS waiting,
  CAST(coalesce(sum(greatest(lag, 0)), 0) AS BIGINT) AS lag, max(age_s) AS oldest_s,
  (SELECT CAST(coalesce(sum(offsets), 0) AS BIGINT) FROM lost_messages) AS lost,
  (SELECT count(DISTINCT (cluster, "group")) FROM lost_messages) AS losers,
  (SELECT count(*) FROM group_states) AS changes
FROM group_lag_now
"""


def groups(reader: ReportReader) -> ReportSection:
    """Lag of consumer groups, losses and states."""
    key, title = "consumer-groups", "Kafka consumer groups"
    summary = reader.row(_SUMMARY)
    verdict = (
        f"{counted(summary['losers'], 'group')} lost {summary['lost']:,} offsets"
        if summary["lost"]
        else ""
    )
    if not summary["groups"] and not summary["changes"]:
        return ReportSection(key, title, [reader.nothing_in("group_lag")], verdict=verdict)
    place = [
        GridColumn("group", "group"),
        GridColumn("topic", "topic"),
        GridColumn("partition", "partition", "number"),
    ]
    parts = [
        Grid(
            "Lag, the largest first",
            [
                *place,
                GridColumn("lag", "lag", "number"),
                GridColumn("records", "records", "number"),
                GridColumn("oldest_s", "oldest", "seconds"),
                GridColumn("trend", "trend"),
                GridColumn("commits", "commits per s", "number"),
                GridColumn("growth", "grows per s", "number"),
                GridColumn("time_to_loss_s", "loss in", "seconds"),
                GridColumn("lost", "lost", "number"),
                GridColumn("state", "state"),
                GridColumn("consumers", "consumers"),
                GridColumn("type", "type"),
                GridColumn("client_id", "client"),
                GridColumn("client_host", "host"),
            ],
            reader.ask("lag", TOP),
            "lag",
        ),
        *filled(
            Grid(
                "Deleted before they were read",
                [
                    *place,
                    GridColumn("offsets", "offsets", "number"),
                    GridColumn("at_first_sight", "before first sight", "number"),
                    GridColumn("first", "first"),
                    GridColumn("last", "last"),
                ],
                reader.ask("group-losses", TOP),
                "group-losses",
            ),
            Grid(
                "Without an offset, ahead of the log, before an open transaction, or gone",
                [
                    *place,
                    GridColumn("state", "state"),
                    GridColumn("unread", "unread", "number"),
                    GridColumn("committed", "committed", "number"),
                    GridColumn("log_end", "log end", "number"),
                    GridColumn("since", "since"),
                    GridColumn("transactional_id", "transaction"),
                ],
                reader.ask("group-states", TOP),
                "group-states",
            ),
        ),
    ]
    return ReportSection(key, title, [_text(summary)], parts, _tile(summary), verdict)


def _tile(summary: Row) -> Tile | None:
    if not summary["groups"]:
        return None
    lost = summary["lost"]
    note = f"a lag of {summary['lag']:,} now"
    return Tile("offsets lost unread", f"{lost:,}", note, bool(lost))


def _text(summary: Row) -> str:
    text = (
        f"{counted(summary['groups'], 'group')} with a lag of {summary['lag']:,} offsets in "
        f"{counted(summary['behind'], 'partition')}"
    )
    if summary["lost"]:
        text += f"; {summary['lost']:,} offsets were deleted before a group read them"
    if summary["ahead"]:
        text += f"; ahead of the log in {counted(summary['ahead'], 'partition')}"
    if summary["waiting"]:
        text += f"; held by an open transaction in {counted(summary['waiting'], 'partition')}"
    return text + "."
