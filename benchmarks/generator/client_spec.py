"""The section of a scenario on clients of Kafka: what they send, and the quotas of their users."""

from __future__ import annotations

from pydantic import Field

from benchmarks.generator.section import ScenarioSection


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


class ClientUserSpec(ScenarioSection):
    """A user: its clients, and the quotas that they share."""

    limits: dict[str, float] = {}
    clients: dict[str, ClientSpec] = Field(min_length=1)


class ClientsSpec(ScenarioSection):
    """All users whose requests are logged."""

    share: float = Field(gt=0, lt=1)
    request_threads: int = Field(8, ge=1)
    users: dict[str, ClientUserSpec] = Field(min_length=1)
