"""The section of the configuration on polled consumer groups of Kafka."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from app.config.base import Milliseconds, Model, Positive, as_text, resolved, shown

WHERE = "source.groups"
"""The place of these settings in the configuration; messages name keys below it."""
DAY_MS = 86_400_000
PATTERN, INTERNAL = "^", "__"
"""How a pattern begins, and how the name of a topic does that Kafka or a tool keeps for itself."""
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def is_partition(name: str) -> bool:
    """Whether a name ends as that of a partition does."""
    # Not at the top: it loads the compiler, for which read commands would wait.
    from udfs.topics import split_partition

    return split_partition(name)[1] is not None


class KafkaGroupsSettings(Model):
    """A Kafka cluster, which groups and topics of it are polled, and where the polls are kept."""

    cluster: Annotated[str, Field(min_length=1)] = "kafka"
    broker: Annotated[str, Field(min_length=1)] = "kafka"
    options: dict[str, str] = {}
    groups: list[str] = []
    topics: list[str] = []
    publish_times: bool = True
    publish_reads: Milliseconds = 500
    bytes_per_message: Annotated[int, Field(ge=0)] | None = None
    retention_as_quota: bool = True
    interval_ms: Positive = 60_000
    timeout_ms: Positive = 10_000
    spool: Annotated[str, Field(min_length=1)] | None = None
    keep_ms: Milliseconds = 7 * DAY_MS

    _text = field_validator("options", mode="before")(as_text)

    @field_validator("groups", "topics", mode="before")
    @classmethod
    def _one_or_many(cls, names: Any) -> Any:
        return [names] if isinstance(names, str) else names

    @field_validator("groups", "topics")
    @classmethod
    def _patterns(cls, names: list[str]) -> list[str]:
        for name in names:
            if not name:
                raise ValueError("an empty name")
            if name.startswith(PATTERN):
                try:
                    re.compile(name)
                except re.error as error:
                    raise ValueError(f"{name!r} is not a pattern ({error})") from None
        return names

    @field_validator("topics")
    @classmethod
    def _names(cls, names: list[str]) -> list[str]:
        for name in names:
            if name.startswith(PATTERN):
                continue
            if not _TOPIC.fullmatch(name):
                raise ValueError(
                    f"{name!r} is not the name of a topic (a pattern begins with {PATTERN})"
                )
            if is_partition(name):
                raise ValueError(f"{name!r} ends like a partition and is ambiguous")
        return names

    @model_validator(mode="after")
    def _complete(self) -> KafkaGroupsSettings:
        for key in self.options:
            if key.startswith("kafka."):
                raise ValueError(
                    f"options.{key}: give the client's own name, {key.removeprefix('kafka.')}"
                )
        if "bootstrap.servers" not in self.options:
            raise ValueError("options.bootstrap.servers: is missing (host:port,...)")
        return self

    def wants_group(self, name: str) -> bool:
        """Whether a group is polled: any, unless some are chosen."""
        return not self.groups or chosen(name, self.groups)

    def wants_topic(self, name: str) -> bool:
        """Whether a topic is polled: any but internal ones, unless some are chosen."""
        if is_partition(name):
            return False  # a name that the contract takes for that of a partition
        if not name.startswith(INTERNAL):
            return not self.topics or chosen(name, self.topics)
        return chosen(name, [each for each in self.topics if each.lstrip(PATTERN)[:2] == INTERNAL])

    def client_options(self) -> dict[str, str]:
        """Options for the client, with secrets from the environment."""
        return resolved(self.options, f"{WHERE}.options")

    def display(self) -> dict[str, Any]:
        """These settings for printing, secrets masked."""
        return {**self.model_dump(), "options": shown(self.options)}

    def __repr_args__(self) -> Any:
        return list(self.display().items())


def chosen(name: str, wanted: list[str]) -> bool:
    """Whether a name is among names and patterns."""
    return any(
        re.fullmatch(each, name) is not None if each.startswith(PATTERN) else each == name
        for each in wanted
    )
