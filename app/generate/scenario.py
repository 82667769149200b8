"""What a scenario file may say; anything else in it is refused with file and key."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from app.config_file import describe, read_yaml
from app.errors import UserError

SHIPPED = Path(__file__).parents[2] / "configs" / "scenarios"
Share = Field(ge=0, le=1)
IncidentName = Literal[
    "noisy-neighbour", "burst", "policy-change", "connection-limit", "resource-group",
    "broker-limit", "broker-restart", "reconnect",
]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FleetSpec(_Part):
    """Brokers, connections and topics."""

    brokers: int = Field(4, ge=1)
    connections: int = Field(60, ge=1)
    topics: int = Field(200, ge=1)
    tenants: dict[str, list[str]] = Field(min_length=1)
    shared_topics: int = Field(12, ge=1)
    second_producers: float = Share
    second_subscriptions: float = Share
    partitioned: float = Share
    supports_throttle: float = Share


class TrafficSpec(_Part):
    """Normal traffic."""

    skew: float = Field(0.8, ge=0)
    wave: float = Share
    mean_batch: int = Field(4, ge=1)
    max_batch: int = Field(20, ge=1)
    message_bytes: tuple[int, int] = (80, 1200)
    poll_s: int = Field(60, ge=1)
    ledger_entries: int = Field(5000, ge=1)


class LimitsSpec(_Part):
    """Publish limits, as multiples of normal traffic."""

    headroom: float = Field(4, ge=2)
    byte_only: list[str] = []
    resource_groups: dict[str, list[str]] = {}
    brokers: list[int] = []


class DisorderSpec(_Part):
    """What a real feed does to its records."""

    shuffled: float = Share
    shuffle_ms: int = Field(450, ge=0)
    repeated: float = Share
    too_late: float = Share
    too_late_s: tuple[float, float] = (2, 30)
    malformed: float = Share


class IncidentSpec(_Part):
    """One incident: where, when, how often. Each kind reads the keys it needs."""

    name: IncidentName
    at_s: float = Field(ge=3)
    for_s: float = Field(0, ge=0)
    every_s: float = Field(5, gt=0)
    times: int = Field(1, ge=1)
    pause_s: float = Field(1, gt=0)
    factor: int = Field(2, ge=1)
    broker: int = Field(0, ge=0)
    topic: int = Field(0, ge=0)
    connection: int = Field(0, ge=0)
    group: str | None = None
    scope: Literal["topic", "namespace"] = "topic"


class Scenario(_Part):
    """A whole scenario file."""

    cluster: str = Field(min_length=1)
    start: datetime
    duration_s: int = Field(600, ge=20)
    quiet_s: int = Field(60, ge=0)
    slice_s: int = Field(10, ge=1)
    fleet: FleetSpec
    traffic: TrafficSpec
    limits: LimitsSpec
    disorder: DisorderSpec
    incidents: list[IncidentSpec] = []

    @field_validator("start")
    @classmethod
    def _has_zone(cls, start: datetime) -> datetime:
        if start.tzinfo is None:
            raise ValueError("needs a time zone, for example 2026-01-05T14:00:00Z")
        return start

    @property
    def start_ms(self) -> int:
        """Start of the trace (ms since the epoch)."""
        return int(self.start.timestamp() * 1000)

    @property
    def active_s(self) -> int:
        """Seconds before the quiet end."""
        return self.duration_s - self.quiet_s


def shipped() -> list[str]:
    """Names of the scenarios that come with Weir."""
    return sorted(p.stem for p in SHIPPED.glob("*.yaml"))


def load_scenario(name: str) -> Scenario:
    """A shipped scenario by its name, or any other by the path of its file."""
    path = SHIPPED / f"{name}.yaml"
    if not path.is_file():
        path = Path(name)
    if not path.is_file():
        raise UserError(f"--scenario {name}: neither a file nor one of {', '.join(shipped())}")
    try:
        return Scenario.model_validate(read_yaml(path, dict))
    except ValidationError as error:
        mistakes = [f"{path}: {text}" for text in describe(error, Scenario)]
        raise UserError.of_many(mistakes, f"see {path}") from error
