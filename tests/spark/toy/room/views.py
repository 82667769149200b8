"""The view of the job: messages of each topic."""

from __future__ import annotations

from app.tables.view import View

_TOPIC_MESSAGES = """
SELECT cluster, topic, CAST(sum(messages) AS BIGINT) AS messages,
  CAST(sum(bytes) AS BIGINT) AS bytes
FROM topic_message_counts GROUP BY cluster, topic
""".strip()

VIEWS = (
    View(
        "topic_messages",
        "Messages and bytes of each topic, of all its windows.",
        _TOPIC_MESSAGES,
        reads=("topic_message_counts",),
    ),
)
