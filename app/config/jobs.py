"""The parameters of the jobs, and which of them are version switches."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, ConfigDict, Field, field_validator, model_validator

from app.config.base import Milliseconds, Model, Positive

JOBS = ("rate_limits", "chunks", "producer_ids", "backlog", "entry_cache")
"""Jobs that this version runs."""


class JobModel(Model):
    """Parameters of one job."""

    def params(self) -> dict[str, Any]:
        """The parameters that the job gets."""
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
        """The parameters that the job gets: defects by name, in their order."""
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
        """The parameters that the job gets: Kafka's settings by Kafka's names."""
        found = self.model_dump(exclude={"profile"}, by_alias=True)
        defects = ["Q1"] if self.profile == "upstream" else self.defects
        return {**found, "defects": defects, "extra_outputs": []}


RetentionPolicy = Literal[
    "producer_request_hold", "producer_exception", "consumer_backlog_eviction"
]


class BacklogSettings(JobModel):
    """Parameters of the job backlog (PIP-323, and the broker settings of the same names)."""

    profile: Literal["intended", "upstream"] = "intended"
    size_estimate: Literal["consumed_average", "ledger_sum"] = "consumed_average"
    age_without_quota: Literal["always", "quota_only"] = "always"
    age_reset: Literal["reset", "keep"] = "reset"
    age_when_empty: Literal["minus_one", "zero"] = "minus_one"
    age_reading: Literal["live", "last_check"] = "live"
    eviction_count_rule: Literal["every_call", "evicted_only"] | None = None
    """None: the profile's value."""
    check_duration_rule: Literal["per_topic", "per_pass"] = "per_topic"
    apply_evictions: bool = False
    check_rows: Literal["backlogged", "all"] = "backlogged"
    forecast_checks: Annotated[int, Field(ge=1, le=1000)] = 10
    backlogQuotaCheckEnabled: bool = True
    backlogQuotaCheckIntervalInSeconds: Annotated[int, Field(ge=1, lt=2**31)] = 60
    backlogQuotaDefaultLimitBytes: Annotated[int, Field(ge=-1, lt=2**63)] = -1
    backlogQuotaDefaultLimitGB: Annotated[float, Field(ge=-1, lt=2**33)] = -1
    backlogQuotaDefaultLimitSecond: Annotated[int, Field(ge=-1, lt=2**53)] = -1
    backlogQuotaDefaultRetentionPolicy: RetentionPolicy = "producer_request_hold"
    preciseTimeBasedBacklogQuotaCheck: bool = False
    exposeTopicLevelMetricsInPrometheus: bool = True

    def params(self) -> dict[str, Any]:
        """The parameters that the job gets: a rule that is set overrides the profile."""
        found = self.model_dump(exclude={"profile"})
        usual = "every_call" if self.profile == "upstream" else "evicted_only"
        rule = self.eviction_count_rule or usual
        return {**found, "eviction_count_rule": rule, "extra_outputs": []}


CachePolicy = Literal[
    "expected_reads", "expected_reads_stash", "fifo", "proportional", "lru"
]
Mebibytes = Annotated[float, Field(ge=0, lt=2**33)]
Share = Annotated[float, Field(ge=0, le=1)]
Times = Annotated[int, Field(ge=0, le=1000)]
Count = Annotated[int, Field(ge=0, lt=2**31)]


class CacheVariant(Model):
    """What one of several caches on the same trace has of its own; the rest is common."""

    policy: CachePolicy | None = None
    max_bytes: Annotated[int, Field(ge=0, lt=2**62)] | None = None
    duplicate_insert: Literal["discard", "merge"] | None = None
    extend_recently_accessed: bool | None = None
    time_pass_pending: Literal["stop", "stash", "ignore"] | None = None
    decrement_on_mark_delete: bool | None = None
    settings_applied_at_start: bool | None = None
    grace_ms: Milliseconds | None = None
    managedLedgerCacheSizeMB: Mebibytes | None = None
    managedLedgerCacheEvictionWatermark: Share | None = None
    managedLedgerCacheEvictionIntervalMs: Positive | None = None
    managedLedgerCacheEvictionTimeThresholdMillis: Milliseconds | None = None
    managedLedgerCacheEvictionTimeThresholdMillisMax: Milliseconds | None = None
    managedLedgerCacheEvictionExtendTTLOfEntriesWithRemainingExpectedReadsMaxTimes: (
        Times | None
    ) = None
    cacheEvictionByMarkDeletedPosition: bool | None = None
    managedLedgerMinimumBacklogCursorsForCaching: Count | None = None
    managedLedgerMinimumBacklogEntriesForCaching: Count | None = None
    managedLedgerMaxBacklogBetweenCursorsForCaching: Count | None = None


class EntryCacheSettings(JobModel):
    """Parameters of the job entry_cache (PIP-430, and the broker settings of the same names)."""

    policy: CachePolicy = "expected_reads"
    duplicate_insert: Literal["discard", "merge"] | None = None
    extend_recently_accessed: bool = True
    time_pass_pending: Literal["stop", "stash", "ignore"] = "stop"
    decrement_on_mark_delete: bool = False
    settings_applied_at_start: bool = True
    release_event: Literal["dispatch", "entry_released"] = "dispatch"
    grace_ms: Milliseconds = 0
    max_bytes: Annotated[int, Field(ge=0, lt=2**62)] | None = None
    managedLedgerCacheSizeMB: Mebibytes | None = None
    managedLedgerCacheEvictionWatermark: Share = 0.9
    managedLedgerCacheEvictionIntervalMs: Positive = 10
    managedLedgerCacheEvictionTimeThresholdMillis: Milliseconds = 1000
    managedLedgerCacheEvictionTimeThresholdMillisMax: Milliseconds = 5000
    managedLedgerCacheEvictionExtendTTLOfEntriesWithRemainingExpectedReadsMaxTimes: Times = 5
    cacheEvictionByExpectedReadCount: bool = True
    cacheEvictionByMarkDeletedPosition: bool = False
    managedLedgerMinimumBacklogCursorsForCaching: Count = 0
    managedLedgerMinimumBacklogEntriesForCaching: Count = 1000
    managedLedgerMaxBacklogBetweenCursorsForCaching: Count = 1000
    variants: list[CacheVariant] = []
    extra_outputs: list[Literal["cache_evictions", "cache_reads"]] = []

    @field_validator("variants")
    @classmethod
    def _differ(cls, variants: list[CacheVariant]) -> list[CacheVariant]:
        for i, one in enumerate(variants):
            if one in variants[:i]:
                raise ValueError(
                    f"{variants.index(one) + 1} and {i + 1} are the same cache (allowed: each once)"
                )
        return variants

    def params(self) -> dict[str, Any]:
        """The parameters that the job gets: of a variant only its own settings."""
        found = {k: v for k, v in self.model_dump().items() if v is not None}
        return {**found, "variants": [v.model_dump(exclude_unset=True) for v in self.variants]}


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
    "backlog": (
        "size_estimate", "age_without_quota", "age_reset", "age_when_empty", "age_reading",
        "eviction_count_rule", "check_duration_rule", "apply_evictions",
        "preciseTimeBasedBacklogQuotaCheck",
    ),
    "entry_cache": (
        "policy", "duplicate_insert", "extend_recently_accessed", "time_pass_pending",
        "decrement_on_mark_delete", "settings_applied_at_start", "release_event", "grace_ms",
    ),
}
"""Version parameters of each job: the `switches` of its output rows. Rows of a cache have what
it has of its own in them, and with it."""

WITHOUT_EFFECT: dict[str, tuple[str, ...]] = {
    "rate_limits": ("connectionsPerBroker",),
    "producer_ids": ("producer.id.quota.cache.cleanup.scheduler.interval.ms",),
    "backlog": ("check_duration_rule",),
}
"""Parameters that are accepted and change no decision of their job."""
