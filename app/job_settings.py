"""The parameters of the jobs, and which of them are version switches."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, ConfigDict, Field, model_validator

from app.model import Milliseconds, Model, Positive

JOBS = ("rate_limits", "chunks", "producer_ids")
"""Jobs that this version runs."""


class JobModel(Model):
    """Parameters of one job."""

    def params(self) -> dict[str, Any]:
        """What the job is told."""
        return self.model_dump()


class RateLimitsSettings(JobModel):
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


BrokerKey = Annotated[int, Field(ge=1, lt=2**53)]
Defect = Literal["B1", "B2", "B3", "B4", "B7", "B8"]
DEFECTS: tuple[Defect, ...] = ("B1", "B2", "B3", "B4", "B7", "B8")


class ChunksSettings(JobModel):
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
    max_shard_bytes: Annotated[int, Field(ge=0, le=2**30)] = 67_108_864

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


class ProducerIdsSettings(JobModel):
    """Parameters of the job producer_ids (KIP-936)."""

    model_config = ConfigDict(populate_by_name=True)

    profile: Literal["intended", "upstream"] = "intended"
    defects: list[Literal["Q1"]] = []
    window_mode: Literal["A", "B", "C", "L"] = "A"
    refresh_on_hit: bool = False
    membership: Literal["bloom", "exact"] = "bloom"
    bloom_items: Annotated[int, Field(ge=1, le=10_000_000)] = 1000
    bloom_fpp: Annotated[float, Field(gt=0, lt=1)] = 0.01
    bloom_rounding: Literal["ceil", "trunc"] = "ceil"
    enforcement: Literal["strict", "permissive"] = "strict"
    insert_rejected: bool = False
    quota_math: Literal["token_bucket", "sampled_rate"] = "token_bucket"
    sampled_stat: Literal["last_event", "start_time"] = "last_event"
    rate_unit: Literal["window", "second"] = "window"
    unlimited_default: Literal["long", "int"] = "long"
    window_num: BrokerKey = Field(default=11, alias="producer.id.quota.window.num")
    window_seconds: BrokerKey = Field(default=3600, alias="producer.id.quota.window.size.seconds")
    window_count: BrokerKey = Field(default=4, alias="producer.id.quota.window.count")
    cleanup_ms: BrokerKey = Field(
        default=10, alias="producer.id.quota.cache.cleanup.scheduler.interval.ms"
    )
    expiration_ms: BrokerKey = Field(default=86_400_000, alias="producer.id.expiration.ms")

    @model_validator(mode="after")
    def _one_choice(self) -> ProducerIdsSettings:
        if self.profile == "upstream" and self.defects:
            raise ValueError("defects: profile upstream turns all of them on; give one of the two")
        return self

    def params(self) -> dict[str, Any]:
        """What the job is told: Kafka's settings by Kafka's names."""
        found = self.model_dump(exclude={"profile"}, by_alias=True)
        defects = ["Q1"] if self.profile == "upstream" else self.defects
        return {**found, "defects": defects, "extra_outputs": []}


SWITCHES: dict[str, tuple[str, ...]] = {
    "rate_limits": (
        "tokenbucket", "release_condition", "throttle_tracker", "limit_change", "protocol",
        "receipt_model", "broker_reason", "pause_rule", "repeat_throttle", "timeout_rule",
    ),
    "chunks": ("defects", "first_dup", "shared_mode", "shared_orphan"),
    "producer_ids": (
        "window_mode", "refresh_on_hit", "membership", "bloom_rounding", "enforcement",
        "insert_rejected", "quota_math", "rate_unit", "sampled_stat", "unlimited_default",
        "defects",
    ),
}
"""Version parameters of each job: the `switches` of its output rows."""
