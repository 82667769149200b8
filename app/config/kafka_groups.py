"""The section of the configuration on polled consumer groups of Kafka."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from app.config import kafka_options
from app.config.base import Milliseconds, Polled, Positive, Text, as_text, resolved, shown
from app.config.kafka_topics import ChosenTopics, Names, chosen

WHERE = "source.groups"
"""The place of these settings in the configuration; messages name keys below it."""


class KafkaGroupsSettings(ChosenTopics, Polled):
    """A Kafka cluster: the groups and topics that are polled, and where the polls are stored."""

    broker: Text = "kafka"
    options: dict[str, str] = {}
    groups: Names = []
    publish_times: bool = True
    publish_reads: Milliseconds = 500
    publish_bytes: Positive = 4 << 20
    """Most bytes that reads take in a minute."""
    bytes_per_message: Annotated[int, Field(ge=0)] | None = None
    retention_as_quota: bool = True

    _text = field_validator("options", mode="before")(as_text)

    @model_validator(mode="after")
    def _complete(self) -> KafkaGroupsSettings:
        for key in self.options:
            if key.startswith("kafka."):
                raise ValueError(
                    f"options.{key}: give the client's own name, {key.removeprefix('kafka.')}"
                )
        kafka_options.refuse(self.options, translates=True)
        if (
            any(key in self.options for key in kafka_options.LOGIN)
            and self._mechanism not in kafka_options.MODULES
        ):
            raise ValueError(
                "options.sasl.mechanism: with sasl.username it is one of "
                f"{', '.join(kafka_options.MODULES)}; for others there is sasl.jaas.config"
            )
        if "bootstrap.servers" not in self.options:
            raise ValueError("options.bootstrap.servers: is missing (host:port,...)")
        return self

    @property
    def _mechanism(self) -> str:
        names = ("sasl.mechanism", "sasl.mechanisms")
        return next((self.options[name] for name in names if name in self.options), "").upper()

    def wants_group(self, name: str) -> bool:
        """Whether a group is polled: every group, unless some are selected."""
        return not self.groups or chosen(name, self.groups)

    def client_options(self) -> dict[str, str]:
        """Options for the client by Java's names, with secrets from the environment."""
        return kafka_options.as_java(resolved(self.options, f"{WHERE}.options"))

    def display(self) -> dict[str, Any]:
        """These settings for printing, secrets masked."""
        return {**self.model_dump(), "options": shown(self.options)}

    def __repr_args__(self) -> Any:
        return list(self.display().items())
