"""What the summary of a report says: the topic with most messages."""

from __future__ import annotations

from app.report.model import Findings
from app.report.phrases import short
from app.report.reader import Reader

_BUSIEST = """
SELECT topic, CAST(sum(messages) AS BIGINT) AS messages FROM topic_message_counts
GROUP BY topic ORDER BY messages DESC, topic LIMIT 1
"""


def sentences(reader: Reader) -> list[str]:
    """A sentence, if there are rows."""
    return [
        f"Topic {short(row['topic'])} had most messages: {row['messages']:,}."
        for row in reader.rows(_BUSIEST)
    ]


FINDINGS = (Findings(60, sentences),)
