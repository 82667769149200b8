"""The section of the configuration on polled producer states of Kafka."""

from __future__ import annotations

from pydantic import field_validator, model_validator

from app.config.base import Model, Polled, Positive, Text, TimeZone
from app.config.kafka_topics import ChosenTopics, NameOrPattern, chosen

WHERE = "source.producers"
"""The place of these settings in the configuration; messages name keys below it."""


class OwnerRule(Model):
    """The owner of producer ids of a topic or of a client id."""

    topic: NameOrPattern | None = None
    client_id: NameOrPattern | None = None
    principal: Text

    @model_validator(mode="after")
    def _complete(self) -> OwnerRule:
        if self.topic is None and self.client_id is None:
            raise ValueError("topic or client_id: one of them is needed")
        return self

    def fits(self, topic: str, client_id: str | None) -> bool:
        """Whether the rule matches an id of this client on this topic."""
        if self.topic is not None and not chosen(topic, [self.topic]):
            return False
        if self.client_id is None:
            return True
        return client_id is not None and chosen(client_id, [self.client_id])


class KafkaProducersSettings(ChosenTopics, Polled):
    """The producer states of a Kafka cluster that are polled, their owners, and where the polls are
    stored. The connection is in the options of the source.
    """

    owners: list[OwnerRule] = []
    acls: bool = False
    request_logs: Text | None = None
    time_zone: TimeZone = "UTC"
    bytes_per_state: Positive = 424
    interval_ms: Positive = 10_000

    @field_validator("request_logs")
    @classmethod
    def _local(cls, path: str | None) -> str | None:
        if path is not None and "://" in path:
            raise ValueError(f"{path!r} is not a path of this machine")
        return path
