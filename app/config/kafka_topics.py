"""Names and patterns in the sections of the configuration on polled Kafka clusters."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from app.config.base import Model

PATTERN, INTERNAL = "^", "__"
"""The beginning of a pattern, and that of the name of an internal topic of Kafka or a tool."""
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def _one_or_many(names: Any) -> Any:
    return [names] if isinstance(names, str) else names


def _pattern(name: str) -> str:
    """A name, or a pattern that compiles; otherwise a ValueError."""
    if not name:
        raise ValueError("an empty name")
    if name.startswith(PATTERN):
        try:
            re.compile(name)
        except re.error as error:
            raise ValueError(f"{name!r} is not a pattern ({error})") from None
    return name


def _topic(name: str) -> str:
    """A valid name of a topic, or a pattern; otherwise a ValueError."""
    if name.startswith(PATTERN):
        return name
    if not _TOPIC.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a topic (a pattern begins with {PATTERN})")
    if _is_partition(name):
        raise ValueError(f"{name!r} ends like a partition and is ambiguous")
    return name


def _is_partition(name: str) -> bool:
    """Whether a name ends as that of a partition does."""
    # Not at the top: it loads the compiler, for which read commands would wait.
    from udfs.topics import split_partition

    return split_partition(name)[1] is not None


NameOrPattern = Annotated[str, AfterValidator(_pattern)]
Names = Annotated[list[NameOrPattern], BeforeValidator(_one_or_many)]
TopicNames = Annotated[
    list[Annotated[NameOrPattern, AfterValidator(_topic)]], BeforeValidator(_one_or_many)
]


class ChosenTopics(Model):
    """A section that selects topics."""

    topics: TopicNames = []

    def wants_topic(self, name: str) -> bool:
        """Whether a topic is polled: every topic but internal ones, unless some are selected."""
        if _is_partition(name):
            return False  # a name that the contract takes for that of a partition
        if not name.startswith(INTERNAL):
            return not self.topics or chosen(name, self.topics)
        return chosen(name, [each for each in self.topics if each.lstrip(PATTERN)[:2] == INTERNAL])


def chosen(name: str, wanted: list[str]) -> bool:
    """Whether a name matches one of some names and patterns."""
    return any(
        re.fullmatch(each, name) is not None if each.startswith(PATTERN) else each == name
        for each in wanted
    )
