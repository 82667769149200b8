"""The scenario file and its keys."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import Field

from app.config.reading import read_yaml
from app.errors import UserError
from benchmarks.generator.backlog_spec import BacklogSpec
from benchmarks.generator.cache_spec import CacheSpec
from benchmarks.generator.client_spec import ClientsSpec
from benchmarks.generator.section import ScenarioSection, Share

FOLDER = Path(__file__).with_name("scenarios")
IncidentName = Literal[
    "noisy-neighbour",
    "burst",
    "policy-change",
    "shared-topic",
    "connection-limit",
    "resource-group",
    "broker-limit",
    "broker-restart",
    "reconnect",
]
FateName = Literal[
    "restarted",
    "resent",
    "never_finished",
    "repeated",
    "oversized",
    "undersized",
    "lost_chunk",
    "duplicate",
    "redelivered",
    "redelivered_unacked",
    "redelivered_acked",
    "consumer_closed",
]


class FleetSpec(ScenarioSection):
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


class TrafficSpec(ScenarioSection):
    """Normal traffic."""

    skew: float = Field(0.8, ge=0)
    wave: float = Share
    mean_batch: int = Field(4, ge=1)
    max_batch: int = Field(20, ge=1)
    message_bytes: tuple[int, int] = (80, 1200)
    poll_s: int = Field(60, ge=1)
    ledger_entries: int = Field(5000, ge=1)


class LimitsSpec(ScenarioSection):
    """Publish limits, as multiples of normal traffic."""

    headroom: float = Field(4, ge=2)
    byte_only: list[str] = []
    resource_groups: dict[str, list[str]] = {}
    brokers: list[int] = []


class DisorderSpec(ScenarioSection):
    """What a real feed does to its records."""

    shuffled: float = Share
    shuffle_ms: int = Field(450, ge=0)
    repeated: float = Share
    too_late: float = Share
    too_late_s: tuple[float, float] = (2, 30)
    malformed: float = Share


class IncidentSpec(ScenarioSection):
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


class LargeSpec(ScenarioSection):
    """Large messages in chunks, on topics of their own."""

    share: float = Field(0.85, gt=0, lt=1)
    namespace: str = Field("archive/scans", pattern=r"^[^/]+/[^/]+$")
    label: str = Field("scan", min_length=1)
    brokers: list[int] = []
    connections: int = Field(0, ge=0)
    gathered: bool = False
    busy_topics: int = Field(8, ge=1)
    crowded_topics: int = Field(2, ge=0)
    crowded_share: float = Share
    handover_topics: int = Field(2, ge=0)
    handover_share: float = Share
    producers: tuple[int, int] = (2, 5)
    crowd: tuple[int, int] = (11, 16)
    subscriptions: tuple[int, int] = (1, 3)
    shared_consumers: int = Field(3, ge=2)
    chunks: tuple[int, int] = (2, 40)
    chunk_bytes: tuple[int, int] = (100, 4000)
    step_ms: tuple[float, float] = (2, 30)
    plain: float = Field(0.25, ge=0)
    fates: dict[FateName, float] = {}


class UserSpec(ScenarioSection):
    """A Kafka user: how many producers it runs, and how often one of them starts anew."""

    producers: int = Field(1, ge=0)
    restarts: int = Field(0, ge=0)
    topics: int = Field(1, ge=1)
    weight: float = Field(1, gt=0)
    producer_ids_rate: float | None = Field(None, gt=0)


class StormSpec(ScenarioSection):
    """A job in a crash loop: a new producer id for nearly every batch."""

    user: str = Field(min_length=1)
    at_s: float = Field(ge=3)
    for_s: float = Field(gt=0)
    share: float = Field(0.12, gt=0, lt=1)
    again: float = Field(0.05, ge=0, le=1)


class KafkaSpec(ScenarioSection):
    """A Kafka cluster beside the fleet: who produces, and how many new producer ids are allowed."""

    share: float = Field(0.07, gt=0, lt=1)
    cluster: str = Field(min_length=1)
    brokers: int = Field(2, ge=1)
    partitions: int = Field(4, ge=1)
    producer_ids_rate: float = Field(gt=0)
    users: dict[str, UserSpec] = Field(min_length=1)
    storm: StormSpec | None = None
    clients: ClientsSpec | None = None

    def bound(self, user: str) -> float:
        """The `producer_ids_rate` that holds for a user."""
        own = self.users[user].producer_ids_rate
        return self.producer_ids_rate if own is None else own


class Scenario(ScenarioSection):
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
    kafka: KafkaSpec | None = None
    cache: CacheSpec | None = None
    backlog: BacklogSpec | None = None

    @property
    def start_ms(self) -> int:
        """Start of the trace (ms since the epoch)."""
        return int(self.start.timestamp() * 1000)

    @property
    def active_s(self) -> int:
        """Seconds before the quiet end."""
        return self.duration_s - self.quiet_s


def names() -> list[str]:
    """Names of the scenarios."""
    return sorted(file.stem for file in FOLDER.glob("*.yaml"))


def load_scenario(name: str) -> Scenario:
    """A scenario by its name."""
    if name not in names():
        raise UserError(f"--scenario {name}: is not one of {', '.join(names())}")
    return Scenario.model_validate(read_yaml(FOLDER / f"{name}.yaml", dict))
