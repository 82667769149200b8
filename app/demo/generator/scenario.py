"""The scenario file: its keys; others are refused with file and key."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from app.config.reading import describe, read_yaml
from app.config.shipped import Place, yaml_files
from app.config.shipped import shipped as shipped_files
from app.demo.generator.backlog_spec import BacklogSpec
from app.demo.generator.cache_spec import CacheSpec
from app.demo.generator.client_spec import ClientsSpec
from app.demo.generator.section import ScenarioSection, Share
from app.errors import UserError

SHIPPED = shipped_files("scenarios")
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
MOST_PRODUCERS = 6
"""Of a busy topic: with the messages that nobody finishes, a consumer has ten at most."""
MOST_CHUNKS = 5000
MOST_SUBSCRIPTIONS = 3
"""Of a topic of large messages: one of each type."""
DISTURBING = ("broker-restart", "broker-limit")
"""Incidents that reach every connection of their broker."""


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

    @field_validator("subscriptions")
    @classmethod
    def _kinds_of_subscription(cls, pair: tuple[int, int]) -> tuple[int, int]:
        if not 1 <= pair[0] <= pair[1] <= MOST_SUBSCRIPTIONS:
            raise ValueError(f"is not a range between 1 and {MOST_SUBSCRIPTIONS}")
        return pair

    @field_validator("chunks")
    @classmethod
    def _chunked(cls, pair: tuple[int, int]) -> tuple[int, int]:
        if pair[0] < 2 or pair[1] > MOST_CHUNKS:
            raise ValueError(f"is not between 2 and {MOST_CHUNKS}")
        return pair

    @model_validator(mode="after")
    def _shares_of_topics(self) -> LargeSpec:
        for role, n, share in (
            ("crowded", self.crowded_topics, self.crowded_share),
            ("handover", self.handover_topics, self.handover_share),
        ):
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


class UserSpec(ScenarioSection):
    """A Kafka user: how many producers it runs, and how often one of them starts anew."""

    producers: int = Field(1, ge=0)
    restarts: int = Field(0, ge=0)
    topics: int = Field(1, ge=1)
    weight: float = Field(1, gt=0)
    producer_ids_rate: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _somebody_restarts(self) -> UserSpec:
        if self.restarts and not self.producers:
            raise ValueError("restarts: needs producers above 0")
        return self


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

    @model_validator(mode="after")
    def _somebody_produces(self) -> KafkaSpec:
        if self.storm is not None and self.storm.user not in self.users:
            raise ValueError(f"storm.user: {self.storm.user} is not one of the users")
        if not any(user.producers for user in self.users.values()):
            raise ValueError("users: none has producers")
        return self

    @model_validator(mode="after")
    def _brokers_of_the_cluster(self) -> KafkaSpec:
        for user in () if self.clients is None else self.clients.users.values():
            for name, client in user.clients.items():
                if not set(client.brokers) <= set(range(self.brokers)):
                    raise ValueError(f"clients: {name}.brokers: {client.brokers} are not all there")
        return self

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

    @model_validator(mode="after")
    def _large_messages_undisturbed(self) -> Scenario:
        if self.large is None:
            return self
        own = self.large.brokers
        if not set(own) <= set(range(self.fleet.brokers)):
            raise ValueError(f"large.brokers: {own} are not all brokers of the fleet")
        reached = {i.broker for i in self.incidents if i.name in DISTURBING}
        if self.incidents and (not own or not self.large.connections or reached & set(own)):
            raise ValueError(
                "large: the answer expected of a large message allows no incidents, unless it has "
                f"connections and brokers of its own without {' and '.join(DISTURBING)}"
            )
        return self

    @model_validator(mode="after")
    def _parts_of_one_whole(self) -> Scenario:
        parts = [
            part.share
            for part in (self.large, self.kafka, self.cache, self.backlog)
            if part is not None
        ]
        if sum(parts) >= 1:
            raise ValueError(
                "shares of large, kafka, cache and backlog: leave nothing for the fleet"
            )
        return self

    @model_validator(mode="after")
    def _brokers_of_the_fleet(self) -> Scenario:
        for name, part in (("cache", self.cache), ("backlog", self.backlog)):
            if part is not None and not set(part.brokers) <= set(range(self.fleet.brokers)):
                raise ValueError(f"{name}.brokers: {part.brokers} are not all brokers of the fleet")
        return self

    @model_validator(mode="after")
    def _storm_within_the_trace(self) -> Scenario:
        storm = None if self.kafka is None else self.kafka.storm
        if storm is not None and storm.at_s + storm.for_s > self.active_s:
            raise ValueError(f"kafka.storm: ends after {self.active_s} s, in the quiet end")
        return self

    @model_validator(mode="after")
    def _clients_within_the_trace(self) -> Scenario:
        clients = None if self.kafka is None else self.kafka.clients
        for user in () if clients is None else clients.users.values():
            for name, client in user.clients.items():
                if client.at_s + (client.for_s or 1) > self.active_s:
                    raise ValueError(f"kafka.clients: {name} ends after {self.active_s} s")
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
    return [file.name.removesuffix(".yaml") for file in yaml_files(SHIPPED)]


def load_scenario(name: str) -> Scenario:
    """A shipped scenario by its name, or any other by the path of its file."""
    path: Place = SHIPPED / f"{name}.yaml"
    if not path.is_file():
        path = Path(name)
    if not path.is_file():
        raise UserError(f"--scenario {name}: neither a file nor one of {', '.join(shipped())}")
    try:
        return Scenario.model_validate(read_yaml(path, dict))
    except ValidationError as error:
        mistakes = [f"{path}: {text}" for text in describe(error, Scenario)]
        raise UserError.of_many(mistakes, f"see {path}") from error
