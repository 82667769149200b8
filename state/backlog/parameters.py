"""The parameters of the job `backlog`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from state.engine.parameters import SWITCH, Parameters

RetentionPolicy = Literal[
    "producer_request_hold", "producer_exception", "consumer_backlog_eviction"
]


class BacklogParameters(Parameters):
    """Parameters of the job backlog (PIP-323, and the broker settings of the same names)."""

    profile: Literal["intended", "upstream"] = "intended"
    size_estimate: Annotated[Literal["consumed_average", "ledger_sum"], SWITCH] = "consumed_average"
    age_without_quota: Annotated[Literal["always", "quota_only"], SWITCH] = "always"
    age_reset: Annotated[Literal["reset", "keep"], SWITCH] = "reset"
    age_when_empty: Annotated[Literal["minus_one", "zero"], SWITCH] = "minus_one"
    age_reading: Annotated[Literal["live", "last_check"], SWITCH] = "live"
    eviction_count_rule: Annotated[Literal["every_call", "evicted_only"] | None, SWITCH] = None
    """None: the profile's value."""
    apply_evictions: Annotated[bool, SWITCH] = False
    check_rows: Literal["backlogged", "all"] = "backlogged"
    forecast_checks: Annotated[int, Field(ge=1, le=1000)] = 10
    backlogQuotaCheckEnabled: bool = True
    backlogQuotaCheckIntervalInSeconds: Annotated[int, Field(ge=1, lt=2**31)] = 60
    backlogQuotaDefaultLimitBytes: Annotated[int, Field(ge=-1, lt=2**63)] = -1
    backlogQuotaDefaultLimitGB: Annotated[float, Field(ge=-1, lt=2**33)] = -1
    backlogQuotaDefaultLimitSecond: Annotated[int, Field(ge=-1, lt=2**53)] = -1
    backlogQuotaDefaultRetentionPolicy: RetentionPolicy = "producer_request_hold"
    preciseTimeBasedBacklogQuotaCheck: Annotated[bool, SWITCH] = False
    ttlDurationDefaultInSeconds: Annotated[int, Field(ge=0, lt=2**31)] = 0
    messageExpiryCheckIntervalInMinutes: Annotated[int, Field(ge=1, lt=2**31)] = 5
    exposeTopicLevelMetricsInPrometheus: bool = True

    def params(self) -> dict[str, Any]:
        """The parameters that the job gets: a rule that is set overrides the profile."""
        found = super().params()
        usual = "every_call" if found.pop("profile") == "upstream" else "evicted_only"
        return {**found, "eviction_count_rule": self.eviction_count_rule or usual}

    def blind_after_gap_ms(self, idle_state_ms: int) -> int:
        """The time until the next check, by which a poll has stated every topic again."""
        return self.backlogQuotaCheckIntervalInSeconds * 1000
