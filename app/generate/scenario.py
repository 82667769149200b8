"""What a scenario file may say; anything else in it is refused with file and key."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from app.config_file import describe, read_yaml
from app.errors import UserError

SHIPPED = Path(__file__).parents[2] / "configs" / "scenarios"
Share = Field(ge=0, le=1)
IncidentName = Literal[
    "noisy-neighbour", "burst", "policy-change", "connection-limit", "resource-group",
    "broker-limit", "broker-restart", "reconnect",
]
FateName = Literal[
    "restarted", "resent", "never_finished", "repeated", "oversized", "undersized", "lost_chunk",
    "duplicate", "redelivered", "redelivered_unacked", "redelivered_acked", "consumer_closed",
]
MOST_PRODUCERS = 6
"""Of a busy topic: with the messages that nobody finishes, a consumer has ten at most."""
MOST_CHUNKS = 5000


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


class LargeSpec(_Part):
    """Large messages in chunks, on topics of their own."""

    share: float = Field(0.85, gt=0, lt=1)
    namespace: str = Field("archive/scans", pattern=r"^[^/]+/[^/]+$")
    busy_topics: int = Field(8, ge=1)
    crowded_topics: int = Field(2, ge=0)
    crowded_share: float = Share
    handover_topics: int = Field(2, ge=0)
    handover_share: float = Share
    producers: tuple[int, int] = (2, 5)
    crowd: tuple[int, int] = (11, 16)
    shared_consumers: int = Field(3, ge=2)
    chunks: tuple[int, int] = (2, 40)
    chunk_bytes: tuple[int, int] = (100, 4000)
    step_ms: tuple[float, float] = (2, 30)
    plain: float = Field(0.25, ge=0)
    fates: dict[FateName, float] = {}

    @field_validator("producers", "crowd", "chunks", "chunk_bytes", "step_ms")
    @classmethod
    def _is_range(cls, pair: tuple[float, float]) -> tuple[float, float]:
        if not 0 < pair[0] <= pair[1]:
            raise ValueError("is not a range of positive numbers")
        return pair

    @field_validator("producers")
    @classmethod
    def _few_producers(cls, pair: tuple[int, int]) -> tuple[int, int]:
        if pair[1] > MOST_PRODUCERS:
            raise ValueError(f"is above {MOST_PRODUCERS}")
        return pair

    @field_validator("chunks")
    @classmethod
    def _chunked(cls, pair: tuple[int, int]) -> tuple[int, int]:
        if pair[0] < 2 or pair[1] > MOST_CHUNKS:
            raise ValueError(f"is not between 2 and {MOST_CHUNKS}")
        return pair

    @model_validator(mode="after")
    def _shares_of_topics(self) -> LargeSpec:
        for role, n, share in (("crowded", self.crowded_topics, self.crowded_share),
                               ("handover", self.handover_topics, self.handover_share)):
            if (n == 0) != (share == 0):
                raise ValueError(f"{role}_topics and {role}_share: one is 0, the other is not")
        if self.crowded_share + self.handover_share > 1:
            raise ValueError("crowded_share and handover_share: more than 1 together")
        return self

    @field_validator("fates")
    @classmethod
    def _shares(cls, fates: dict[FateName, float]) -> dict[FateName, float]:
        busy = sum(share for name, share in fates.items() if name != "consumer_closed")
        most = max(busy - 1e-9, fates.get("consumer_closed", 0))  # sums of shares are rounded
        if min(fates.values(), default=0) < 0 or most > 1:
            raise ValueError("are not shares of one whole")
        return fates


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
    large: LargeSpec | None = None

    @model_validator(mode="after")
    def _one_or_the_other(self) -> Scenario:
        if self.large is not None and self.incidents:
            raise ValueError("large: the answer expected of a large message allows no incidents")
        return self

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
