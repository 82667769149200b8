"""The section of a scenario on clients of Kafka: what they send, and the quotas of their users."""

from __future__ import annotations

from pydantic import Field, model_validator

from app.demo.generator.section import ScenarioSection
from state.policies import CLIENT_QUOTAS


class ClientSpec(ScenarioSection):
    """A client id: what it asks of each of its brokers per second, while no broker throttles it."""

    api: str = Field("PRODUCE", min_length=1)
    topic: str = ""
    requests: float = Field(gt=0)
    bytes: float = Field(0, ge=0)
    threads: float = Field(0.005, gt=0)
    connections: int = Field(1, ge=1)
    spread: float = Field(0.2, ge=0, le=1)
    brokers: list[int] = []
    at_s: float = Field(0, ge=0)
    for_s: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _bytes_of_a_topic(self) -> ClientSpec:
        if bool(self.bytes) != bool(self.topic):
            raise ValueError("bytes and topic: one is there without the other")
        return self


class ClientUserSpec(ScenarioSection):
    """A user: its clients, and the quotas that they share."""

    limits: dict[str, float] = {}
    clients: dict[str, ClientSpec] = Field(min_length=1)

    @model_validator(mode="after")
    def _limits_of_kafka(self) -> ClientUserSpec:
        for key, bound in self.limits.items():
            if key not in CLIENT_QUOTAS[:3] or bound <= 0:
                raise ValueError(f"limits: {key}: {bound} is not above 0, or no quota of requests")
        return self


class ClientsSpec(ScenarioSection):
    """All users whose requests are logged."""

    share: float = Field(gt=0, lt=1)
    request_threads: int = Field(8, ge=1)
    users: dict[str, ClientUserSpec] = Field(min_length=1)
