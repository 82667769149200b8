"""The section of the configuration on the throttle feed."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from app.config import kafka_options
from app.config.base import Model, as_text, resolved, shown
from udfs import wire
from udfs.wire import MOST_NUMBER

FieldNumber = Annotated[int, Field(ge=1, le=MOST_NUMBER)]


class CommandFields(Model):
    """Field numbers of CommandThrottleProducer in the feed's `command` headers."""

    request_id: FieldNumber = wire.PROPOSED.request_id
    producer_id: FieldNumber = wire.PROPOSED.producer_id
    throttling_reason: FieldNumber = wire.PROPOSED.throttling_reason
    pause_for_millis: FieldNumber = wire.PROPOSED.pause_for_millis

    @model_validator(mode="after")
    def _encodable(self) -> CommandFields:
        self.numbers()
        return self

    def numbers(self) -> wire.Fields:
        """The numbers in the form that the codec takes."""
        return wire.Fields(**self.model_dump())


class ThrottleFeedSettings(Model):
    """The topic of the throttle feed and its options."""

    topic: str = ""
    options: dict[str, str] = {}
    fields: CommandFields = CommandFields()

    _text = field_validator("options", mode="before")(as_text)

    @model_validator(mode="after")
    def _complete(self) -> ThrottleFeedSettings:
        if not self.topic:
            raise ValueError("topic: is missing (the Kafka topic that takes the commands)")
        if "kafka.bootstrap.servers" not in self.options:
            raise ValueError("options.kafka.bootstrap.servers: is missing (host:port,...)")
        for key in self.options:
            if not key.startswith("kafka."):
                raise ValueError(f"options.{key}: unknown option (allowed: kafka.*)")
        kafka_options.refuse(self.options, "kafka.")
        return self

    def writer_options(self) -> dict[str, str]:
        """Options for the writer, with secrets from the environment."""
        return resolved(self.options, "throttle_feed.options")

    def __repr_args__(self) -> Any:
        return [
            (name, shown(self.options) if name == "options" else value)
            for name, value in super().__repr_args__()
        ]
