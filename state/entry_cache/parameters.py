"""The parameters of the job `entry_cache`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from state.engine.parameters import SWITCH, Milliseconds, OnlyWith, Parameters, Positive, Section

CachePolicy = Literal["expected_reads", "expected_reads_stash", "fifo", "proportional", "lru"]
Mebibytes = Annotated[float, Field(ge=0, lt=2**33)]
Share = Annotated[float, Field(ge=0, le=1)]
Times = Annotated[int, Field(ge=0, le=1000)]
Count = Annotated[int, Field(ge=0, lt=2**31)]
WITHOUT_READS = (
    OnlyWith("policy", ("fifo", "proportional")),
    OnlyWith("cacheEvictionByExpectedReadCount", (False,)),
)
"""Of settings that a broker ignores while it counts expected reads."""
STASH = OnlyWith("policy", ("expected_reads_stash",))


class CacheVariant(Section):
    """What one of several caches on the same trace has of its own; the rest is common."""

    policy: CachePolicy | None = None
    max_bytes: Annotated[int, Field(ge=0, lt=2**62)] | None = None
    duplicate_insert: Literal["discard", "merge"] | None = None
    extend_recently_accessed: bool | None = None
    time_pass_pending: Literal["stop", "stash", "ignore"] | None = None
    decrement_on_mark_delete: bool | None = None
    settings_applied_at_start: bool | None = None
    grace_ms: Milliseconds | None = None
    storage_reads: Literal["as_broker", "all"] | None = None
    managedLedgerCacheSizeMB: Mebibytes | None = None
    managedLedgerCacheEvictionWatermark: Share | None = None
    managedLedgerCacheEvictionIntervalMs: Positive | None = None
    managedLedgerCacheEvictionTimeThresholdMillis: Milliseconds | None = None
    managedLedgerCacheEvictionTimeThresholdMillisMax: Milliseconds | None = None
    managedLedgerCacheEvictionExtendTTLOfEntriesWithRemainingExpectedReadsMaxTimes: Times | None = (
        None
    )
    cacheEvictionByMarkDeletedPosition: bool | None = None
    managedLedgerMinimumBacklogCursorsForCaching: Count | None = None
    managedLedgerMinimumBacklogEntriesForCaching: Count | None = None
    managedLedgerMaxBacklogBetweenCursorsForCaching: Count | None = None


class EntryCacheParameters(Parameters):
    """Parameters of the job entry_cache (PIP-430, and the broker settings of the same names)."""

    policy: Annotated[CachePolicy, SWITCH] = "expected_reads"
    duplicate_insert: Annotated[Literal["discard", "merge"] | None, SWITCH] = None
    extend_recently_accessed: Annotated[bool, SWITCH] = True
    time_pass_pending: Annotated[Literal["stop", "stash", "ignore"], SWITCH, STASH] = "stop"
    decrement_on_mark_delete: Annotated[bool, SWITCH] = False
    settings_applied_at_start: Annotated[bool, SWITCH] = True
    release_event: Annotated[Literal["dispatch", "entry_released"], SWITCH] = "dispatch"
    grace_ms: Annotated[Milliseconds, SWITCH] = 0
    storage_reads: Annotated[Literal["as_broker", "all"], SWITCH] = "all"
    max_bytes: Annotated[int, Field(ge=0, lt=2**62)] | None = None
    managedLedgerCacheSizeMB: Mebibytes | None = None
    managedLedgerCacheEvictionWatermark: Share = 0.9
    managedLedgerCacheEvictionIntervalMs: Positive = 10
    managedLedgerCacheEvictionTimeThresholdMillis: Milliseconds = 1000
    managedLedgerCacheEvictionTimeThresholdMillisMax: Annotated[Milliseconds, STASH] = 5000
    managedLedgerCacheEvictionExtendTTLOfEntriesWithRemainingExpectedReadsMaxTimes: Times = 5
    cacheEvictionByExpectedReadCount: bool = True
    cacheEvictionByMarkDeletedPosition: Annotated[bool, *WITHOUT_READS] = False
    managedLedgerMinimumBacklogCursorsForCaching: Annotated[Count, *WITHOUT_READS] = 0
    managedLedgerMinimumBacklogEntriesForCaching: Annotated[Count, *WITHOUT_READS] = 1000
    managedLedgerMaxBacklogBetweenCursorsForCaching: Annotated[Count, *WITHOUT_READS] = 1000
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
        found = {k: v for k, v in super().params().items() if v is not None}
        return {**found, "variants": [v.model_dump(exclude_unset=True) for v in self.variants]}

    def blind_after_gap_ms(self, idle_state_ms: int) -> int:
        """The longest life of an entry that nobody reads, in any of the caches."""
        return max(self._longest_life_ms(one) for one in (self.variants or [CacheVariant()]))

    def _longest_life_ms(self, variant: CacheVariant) -> int:
        prefix = "managedLedgerCacheEviction"
        ttl_ms, most_ms, times = (
            getattr(self, name) if getattr(variant, name) is None else getattr(variant, name)
            for name in (
                f"{prefix}TimeThresholdMillis",
                f"{prefix}TimeThresholdMillisMax",
                f"{prefix}ExtendTTLOfEntriesWithRemainingExpectedReadsMaxTimes",
            )
        )
        return max(most_ms, ttl_ms * (1 + times))
