"""What is told of a topic: the messages of a window."""

from __future__ import annotations

from app.show.explain.ask import Ask, ConfiguredPolicies, Explained, Subject, of_topic
from app.show.explain.nearby_rows import SnapshotReader
from app.show.explain.sentence import Quoted, Sentence
from app.show.explain.windows import PLACE, window_sentences


def sentences(reader: SnapshotReader, ask: Ask, configured: ConfiguredPolicies) -> list[Sentence]:
    """The window that contains the moment."""
    return window_sentences(reader, ask, "topic_message_counts", "false", _window)


def _window(row: Quoted) -> str:
    return f"{row.messages:n message} of {row.bytes:n byte} arrived in {row.topic}"


EXPLAINED = Explained(
    place=60,
    subjects=(Subject(PLACE, ("topic",), sentences),),
    levels={"topic": {"topic_message_counts": of_topic()}},
)
