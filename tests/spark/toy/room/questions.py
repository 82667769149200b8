"""The question of the job: which topics have most messages."""

from __future__ import annotations

from app.read.question import ROWS, Question

_MOST_MESSAGES = """
SELECT cluster, topic, messages, bytes FROM topic_messages
ORDER BY messages DESC, cluster, topic
LIMIT $rows
""".strip()

QUESTIONS = (
    Question(
        "most-messages",
        "Topics by their messages.",
        ("topic_messages",),
        _MOST_MESSAGES,
        (ROWS,),
    ),
)
