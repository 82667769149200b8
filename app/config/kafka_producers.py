"""The section of the configuration on polled producer states of Kafka."""

from __future__ import annotations

import re
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator, model_validator

from app.config.base import Milliseconds, Model, Positive
from app.config.kafka_groups import DAY_MS, INTERNAL, PATTERN, chosen, is_partition

WHERE = "source.producers"
"""The place of these settings in the configuration; messages name keys below it."""
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
Text = Annotated[str, Field(min_length=1)]


def _pattern(name: str) -> str:
    """A name, or a pattern that compiles; a ValueError for another."""
    if not name:
        raise ValueError("an empty name")
    if name.startswith(PATTERN):
        try:
            re.compile(name)
        except re.error as error:
            raise ValueError(f"{name!r} is not a pattern ({error})") from None
    return name


class OwnerRule(Model):
    """Whose the producer ids of a topic or of a client id are."""

    topic: str | None = None
    client_id: str | None = None
    principal: Text

    @field_validator("topic", "client_id")
    @classmethod
    def _names(cls, name: str | None) -> str | None:
        return None if name is None else _pattern(name)

    @model_validator(mode="after")
    def _complete(self) -> OwnerRule:
        if self.topic is None and self.client_id is None:
            raise ValueError("topic or client_id: one of them is needed")
        return self

    def fits(self, topic: str, client_id: str | None) -> bool:
        """Whether the rule is for an id of this client on this topic."""
        if self.topic is not None and not chosen(topic, [self.topic]):
            return False
        if self.client_id is None:
            return True
        return client_id is not None and chosen(client_id, [self.client_id])


class KafkaProducersSettings(Model):
    """Which producer states of a Kafka cluster are polled, whose they are, and where the polls are
    kept. The connection is in the options of the source."""

    cluster: Text = "kafka"
    topics: list[str] = []
    owners: list[OwnerRule] = []
    acls: bool = False
    request_logs: Text | None = None
    time_zone: str = "UTC"
    bytes_per_state: Positive = 424
    interval_ms: Positive = 10_000
    timeout_ms: Positive = 10_000
    spool: Text | None = None
    keep_ms: Milliseconds = 7 * DAY_MS

    @field_validator("topics", mode="before")
    @classmethod
    def _one_or_many(cls, names: Any) -> Any:
        return [names] if isinstance(names, str) else names

    @field_validator("topics")
    @classmethod
    def _topics(cls, names: list[str]) -> list[str]:
        for name in names:
            if not _pattern(name).startswith(PATTERN) and not _TOPIC.fullmatch(name):
                raise ValueError(
                    f"{name!r} is not the name of a topic (a pattern begins with {PATTERN})"
                )
        return names

    @field_validator("time_zone")
    @classmethod
    def _known(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            raise ValueError(f"{name!r} is not a time zone (for example Europe/Berlin)") from None
        return name

    @field_validator("request_logs")
    @classmethod
    def _local(cls, path: str | None) -> str | None:
        if path is not None and "://" in path:
            raise ValueError(f"{path!r} is not a path of this machine")
        return path

    def wants_topic(self, name: str) -> bool:
        """Whether a topic is polled: any but internal ones, unless some are chosen."""
        if is_partition(name):
            return False  # a name that the contract takes for that of a partition
        if not name.startswith(INTERNAL):
            return not self.topics or chosen(name, self.topics)
        return chosen(name, [each for each in self.topics if each.lstrip(PATTERN)[:2] == INTERNAL])
