"""The section of a report: topics by their messages."""

from __future__ import annotations

from app.show.report.model import Grid, GridColumn, JobSection, ReportSection
from app.show.report.report_reader import ReportReader
from app.terminal.counts import counted

_TOPICS = """
SELECT cluster, topic, CAST(sum(messages) AS BIGINT) AS messages FROM topic_message_counts
GROUP BY cluster, topic ORDER BY messages DESC, cluster, topic
"""
SHOWN = 12


def message_counts(reader: ReportReader) -> ReportSection:
    """The topics with most messages."""
    key, title = "message-counts", "Messages"
    rows = reader.rows(_TOPICS)
    if not rows:
        return ReportSection(key, title, [reader.nothing_in("topic_message_counts")])
    columns = [
        GridColumn("topic", "topic", "topic"),
        GridColumn("cluster", "cluster"),
        GridColumn("messages", "messages", "number"),
    ]
    grid = Grid("Topics by their messages", columns, rows[:SHOWN], '"FROM topic_message_counts"')
    return ReportSection(key, title, [f"{counted(len(rows), 'topic')} had messages."], [grid])


SECTIONS = (JobSection(95, message_counts, ("topic_message_counts",)),)
REACHED = ("topic_message_counts",)
