"""The configuration as pydantic models: unknown keys are refused, every job gets its parameters.

`configs/weir.yaml` documents every key. Text such as `${env:NAME}` in reader and storage options
stays as it is written here; `resolved` puts the value in where a connection is opened, so that
no secret is ever printed, hashed or logged.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from app.config_file import describe, merge, policy_documents, read_yaml
from app.errors import UserError, did_you_mean
from state.rate_limits import wire

JOBS = ("rate_limits", "chunks")
"""Jobs that this version runs."""
SECRET = re.compile(
    r"password|secret|jaas|token|credential|access_?key|account_?key|sas_?key|private|keystore\.key",
    re.IGNORECASE,
)
ENV = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
MASK = "********"
KAFKA_OPTIONS = (
    "subscribe", "subscribePattern", "assign", "startingOffsets", "startingTimestamp",
    "startingOffsetsByTimestamp", "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "failOnDataLoss", "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition",
    "groupIdPrefix", "includeHeaders",
)

Milliseconds = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]


class Model(BaseModel):
    """Base of every part of the configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def shown(options: dict[str, str]) -> dict[str, str]:
    """Options as they may be printed: a secret written out in the file is masked."""
    return {k: MASK if SECRET.search(k) and not ENV.search(v) else v for k, v in options.items()}


def resolved(options: dict[str, str], where: str) -> dict[str, str]:
    """Options with every `${env:NAME}` replaced; a variable that is not set is a UserError."""

    def value(key: str, match: re.Match[str]) -> str:
        name = match[1]
        if name not in os.environ:
            raise UserError(f"{where}.{key}: the environment variable {name} is not set")
        return os.environ[name]

    return {k: ENV.sub(lambda m, k=k: value(k, m), v) for k, v in options.items()}  # type: ignore[misc]


def _as_text(value: Any) -> Any:
    """Options are text for their readers; numbers and switches may be written as such."""
    if not isinstance(value, dict):
        return value
    plain = (str, int, float)
    return {
        k: str(v).lower() if isinstance(v, bool) else str(v) if isinstance(v, plain) else v
        for k, v in value.items()
    }


class HeaderNames(Model):
    """Kafka headers that hold what the contract has a column for."""

    principal: str = "principal"
    producer_name: str = "producer_name"
    producer_id: str = "producer_id"
    uuid: str = "uuid"
    chunk_id: str = "chunk_id"
    num_chunks: str = "num_chunks"
    total_chunk_bytes: str = "total_chunk_bytes"

    @model_validator(mode="after")
    def _apart(self) -> HeaderNames:
        named = list(self.model_dump().values())
        for name in named:
            if named.count(name) > 1:
                raise ValueError(f"{name!r} stands for more than one column")
        return self


class MessagesSettings(Model):
    """What stands in records made of ordinary Kafka messages (source format kafka_messages)."""

    cluster: Annotated[str, Field(min_length=1)] = "kafka"
    broker: Annotated[str, Field(min_length=1)] = "kafka"
    subscription: str | None = None
    headers: HeaderNames = HeaderNames()


class SourceSettings(Model):
    """Where the records come from."""

    format: Literal["kafka", "kafka_messages", "files", "delta", "demo"] = "demo"
    path: str | None = None
    options: dict[str, str] = {}
    messages: MessagesSettings = MessagesSettings()
    events: Positive = 1_000_000
    seed: int = 7

    _text = field_validator("options", mode="before")(_as_text)

    @model_validator(mode="after")
    def _complete(self) -> SourceSettings:
        if self.format in ("files", "delta") and not self.path:
            raise ValueError(f"path: is missing, format {self.format} needs it")
        if self.format in ("kafka", "kafka_messages"):
            if "kafka.bootstrap.servers" not in self.options:
                raise ValueError("options.kafka.bootstrap.servers: is missing (host:port,...)")
            chosen = [k for k in ("subscribe", "subscribePattern", "assign") if k in self.options]
            if len(chosen) != 1:
                raise ValueError("options: exactly one of subscribe, subscribePattern, assign")
            for key in self.options:
                if not key.startswith("kafka.") and key not in KAFKA_OPTIONS:
                    hint = did_you_mean(key, ("kafka.*", *KAFKA_OPTIONS))
                    raise ValueError(f"options.{key}: unknown option ({hint})")
        return self

    def reader_options(self) -> dict[str, str]:
        """Options for the reader, secrets put in from the environment."""
        return resolved(self.options, "source.options")

    def __repr_args__(self) -> Any:
        return [
            (name, shown(self.options) if name == "options" else value)
            for name, value in super().__repr_args__()
        ]


class RateLimitsSettings(Model):
    """Parameters of the job rate_limits (spec: rate limits, sections 2 and 8)."""

    tokenbucket: Literal["saturating", "wrapping", "per_tick"] = "saturating"
    release_condition: Literal["target", "positive"] = "target"
    throttle_tracker: Literal["per_type", "shared_counter"] = "per_type"
    limit_change: Literal["immediate", "scheduled"] = "immediate"
    protocol: Literal["none", "pip385"] = "none"
    receipt_model: Literal["none", "supported", "observed", "all"] = "none"
    broker_reason: Literal["inform", "wait"] = "inform"
    pause_rule: Literal["pip", "model"] = "pip"
    repeat_throttle: Literal["replace", "max"] = "replace"
    timeout_rule: Literal["active", "seen"] = "active"
    extra_outputs: list[Literal["publish_verdicts"]] = []
    throttleProducerReceiptWaitTimeMillis: Milliseconds = 100
    connectionsPerBroker: Positive = 1


Defect = Literal["B1", "B2", "B3", "B4", "B7", "B8"]
DEFECTS: tuple[Defect, ...] = ("B1", "B2", "B3", "B4", "B7", "B8")


class ChunksSettings(Model):
    """Parameters of the job chunks (PIP-37, and the client settings of the same names)."""

    profile: Literal["intended", "upstream"] = "intended"
    defects: list[Defect] = []
    first_dup: Literal["restart", "lose"] = "restart"
    shared_mode: Literal["pin", "hash", "marker"] = "pin"
    shared_orphan: Literal["ack_skip", "stall", "dispatch"] = "ack_skip"
    maxPendingChunkedMessage: Annotated[int, Field(
        ge=-(2**31), lt=2**31,
        validation_alias=AliasChoices("maxPendingChunkedMessage", "maxPendingChuckedMessage"),
    )] = 10
    autoAckOldestChunkedMessageOnQueueFull: bool = False
    expireTimeOfIncompleteChunkedMessageMillis: Annotated[int, Field(lt=2**53)] = 60_000
    assemble_payload: bool = False
    max_payload_bytes: Annotated[int, Field(ge=1, le=2**31 - 2**16)] = 134_217_728
    inline_payload_bytes: Annotated[int, Field(ge=0, le=2**20)] = 65_536
    max_bytes: Annotated[int, Field(ge=0, le=2**30)] = 8_388_608

    @model_validator(mode="after")
    def _one_choice(self) -> ChunksSettings:
        if self.profile == "upstream" and self.defects:
            raise ValueError("defects: profile upstream turns all of them on; give one of the two")
        return self

    def params(self) -> dict[str, Any]:
        """What the job is told: defects by name, in their order."""
        found = self.model_dump(exclude={"profile"})
        chosen = DEFECTS if self.profile == "upstream" else self.defects
        return {**found, "defects": [d for d in DEFECTS if d in chosen], "extra_outputs": []}


_ESCAPED = re.compile(r"%[0-9A-Fa-f]{2}")
"""delta-rs takes it for the sign it stands for, and cannot work on a path with a `[`."""

FieldNumber = Annotated[int, Field(ge=1, le=wire.MOST_NUMBER)]


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
        """The numbers as the codec takes them."""
        return wire.Fields(**self.model_dump())


class ThrottleFeedSettings(Model):
    """Where throttle commands are published."""

    topic: str = ""
    options: dict[str, str] = {}
    fields: CommandFields = CommandFields()

    _text = field_validator("options", mode="before")(_as_text)

    @model_validator(mode="after")
    def _complete(self) -> ThrottleFeedSettings:
        if not self.topic:
            raise ValueError("topic: is missing (the Kafka topic that takes the commands)")
        if "kafka.bootstrap.servers" not in self.options:
            raise ValueError("options.kafka.bootstrap.servers: is missing (host:port,...)")
        for key in self.options:
            if not key.startswith("kafka."):
                raise ValueError(f"options.{key}: unknown option (allowed: kafka.*)")
        return self

    def writer_options(self) -> dict[str, str]:
        """Options for the writer, secrets put in from the environment."""
        return resolved(self.options, "throttle_feed.options")

    def __repr_args__(self) -> Any:
        return [
            (name, shown(self.options) if name == "options" else value)
            for name, value in super().__repr_args__()
        ]


SWITCHES: dict[str, tuple[str, ...]] = {
    "rate_limits": (
        "tokenbucket", "release_condition", "throttle_tracker", "limit_change", "protocol",
        "receipt_model", "broker_reason", "pause_rule", "repeat_throttle", "timeout_rule",
    ),
    "chunks": ("defects", "first_dup", "shared_mode", "shared_orphan"),
}
"""Version parameters of each job: the `switches` of its output rows."""


class PolicyDocument(Model):
    """Limits of one scope and name (event contract, section 5); checked by `app.policies`."""

    scope: str
    name: str
    limits: dict[str, Any]


class Settings(Model):
    """The whole configuration."""

    warehouse: str = Field(default="weir-warehouse", min_length=1)
    source: SourceSettings = SourceSettings()
    queries: list[list[str]] = [["rate_limits", "chunks"]]
    shards: Annotated[int, Field(ge=1, le=4096)] = 16
    partitions: Positive | None = None
    trigger_ms: Milliseconds = 0
    archive_trigger_ms: Milliseconds = 10_000
    commit: Literal["delta-rs", "spark"] = "delta-rs"
    archive_payload: bool = False
    storage_options: dict[str, str] = {}
    allowed_lateness_ms: Milliseconds = 500
    idle_advance_ms: Positive = 10_000
    max_future_ms: Milliseconds = 3_600_000
    idle_state_ms: Milliseconds = 3_600_000
    stats_window_ms: Positive = 60_000
    rate_limits: RateLimitsSettings = RateLimitsSettings()
    chunks: ChunksSettings = ChunksSettings()
    throttle_feed: ThrottleFeedSettings | None = None
    policies: list[PolicyDocument] = []
    policy_files: list[str] = []

    _text = field_validator("storage_options", mode="before")(_as_text)

    @field_validator("warehouse")
    @classmethod
    def _plain_path(cls, warehouse: str) -> str:
        for sign, found in (("[", "[" in warehouse), ("%XX", _ESCAPED.search(warehouse))):
            if found:
                raise ValueError(
                    f"{warehouse!r} has {sign} in it, which tables are not safe under; take "
                    "another path (allowed: any path without [ and without % before two digits)"
                )
        return warehouse

    @field_validator("queries")
    @classmethod
    def _known_jobs(cls, groups: list[list[str]]) -> list[list[str]]:
        named = [job for group in groups for job in group]
        if not groups or not all(groups):
            raise ValueError("is empty; write groups of jobs, for example [[rate_limits]]")
        for job in named:
            if job not in JOBS:
                raise ValueError(f"{job!r} is not a job (allowed: {', '.join(JOBS)})")
            if named.count(job) > 1:
                raise ValueError(f"{job!r} stands in more than one place; a job runs once")
        return groups

    @model_validator(mode="after")
    def _payloads_can_be_written(self) -> Settings:
        if self.chunks.assemble_payload and self.commit == "spark":
            raise ValueError(
                "chunks.assemble_payload: tasks write payloads themselves, which commit spark "
                "does not allow (commit allowed: delta-rs)"
            )
        return self

    @field_validator("throttle_feed")
    @classmethod
    def _has_commands(
        cls, feed: ThrottleFeedSettings | None, info: ValidationInfo
    ) -> ThrottleFeedSettings | None:
        job = info.data.get("rate_limits")
        if feed is not None and job is not None and job.protocol != "pip385":
            raise ValueError(
                f"there are no commands with rate_limits.protocol {job.protocol} (allowed: pip385)"
            )
        return feed

    @property
    def jobs(self) -> tuple[str, ...]:
        """Every job of every query, in the order of the configuration."""
        return tuple(job for group in self.queries for job in group)

    def policy_dicts(self) -> list[dict[str, Any]]:
        """The configured policies as the documents they are, each scope and name once."""
        return [policy.model_dump() for policy in self.policies]

    def job_params(self, job: str) -> dict[str, Any]:
        """Resolved parameters of a job: the shared ones and its own."""
        shared = ("allowed_lateness_ms", "idle_advance_ms", "idle_state_ms", "stats_window_ms")
        own: Model = getattr(self, job)
        params = own.params() if isinstance(own, ChunksSettings) else own.model_dump()
        return {**{key: getattr(self, key) for key in shared}, **params}

    def switches(self, job: str) -> dict[str, str]:
        """Version parameters in force for a job, as its output rows carry them."""
        params = self.job_params(job)
        return {
            name: ",".join(value) if isinstance(value, list) else str(value)
            for name, value in ((name, params[name]) for name in SWITCHES[job])
        }

    def params_hash(self, job: str) -> str:
        """Hash of what decides a job's answers: parameters and configured policies."""
        params = self.job_params(job)
        return _digest({"job": job, "params": params, "policies": self.policy_dicts()})

    def config_hash(self) -> str:
        """Hash of the whole configuration, policies included, secrets in the environment not."""
        return _digest(self.model_dump(exclude={"policy_files"}))

    def display(self) -> dict[str, Any]:
        """The configuration as it may be printed."""
        plain = self.model_dump()
        plain["source"]["options"] = shown(self.source.options)
        plain["storage_options"] = shown(self.storage_options)
        if self.throttle_feed is not None:
            plain["throttle_feed"]["options"] = shown(self.throttle_feed.options)
        return plain

    def storage(self) -> dict[str, str]:
        """Options for the object store of the warehouse, secrets put in from the environment."""
        return resolved(self.storage_options, "storage_options")

    def __repr_args__(self) -> Any:
        return [
            (name, shown(self.storage_options) if name == "storage_options" else value)
            for name, value in super().__repr_args__()
        ]


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def load_settings(path: Path | None = None, overrides: dict[str, Any] | None = None) -> Settings:
    """The configuration in `path` (defaults without one) with `overrides` merged over it.

    Every mistake is collected; a UserError carries all of them and shows the first.
    """
    where = str(path) if path else "configuration"
    document = merge(read_yaml(path, dict) if path else {}, overrides or {})
    policies, mistakes = policy_documents(document, where, path.parent if path else Path())
    if isinstance(document.get("policies", []), list):
        document = {**document, "policies": policies}
    settings: Settings | None = None
    try:
        settings = Settings.model_validate(document)
    except ValidationError as error:
        mistakes = [f"{where}: {text}" for text in describe(error, Settings)] + mistakes
    if mistakes or settings is None:
        hint = f"./spark-submit.sh validate --config {path}" if path else "validate"
        raise UserError.of_many(mistakes, hint)
    return settings
