"""What is told of a topic: the messages of a window."""

from __future__ import annotations

from app.explain.ask import Ask, Configured, Explained, Subject, of_topic
from app.explain.reader import Reader
from app.explain.sentence import Quoted, Sentence
from app.explain.windows import PLACE, window_sentences


def sentences(reader: Reader, ask: Ask, configured: Configured) -> list[Sentence]:
    """The window that contains the moment."""
    return window_sentences(reader, ask, "topic_message_counts", "false", _window)


def _window(row: Quoted) -> str:
    return f"{row.messages:n message} of {row.bytes:n byte} arrived in {row.topic}"


EXPLAINED = Explained(
    place=60,
    subjects=(Subject(PLACE, ("topic",), sentences),),
    levels={"topic": {"topic_message_counts": of_topic()}},
)
