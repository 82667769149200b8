"""What the summary of a report says: the topic with most messages."""

from __future__ import annotations

from app.show.report.model import Finding, JobFindings
from app.show.report.report_reader import ReportReader
from app.terminal.phrases import short

_BUSIEST = """
SELECT topic, CAST(sum(messages) AS BIGINT) AS messages FROM topic_message_counts
GROUP BY topic ORDER BY messages DESC, topic LIMIT 1
"""


def findings(reader: ReportReader) -> list[Finding]:
    """A finding, if there are rows."""
    return [
        Finding(f"Topic {short(row['topic'])} had most messages: {row['messages']:,}.")
        for row in reader.rows(_BUSIEST)
    ]


FINDINGS = (JobFindings(60, findings),)
