"""The parameters of the job `rate_limits`."""

from __future__ import annotations

from typing import Annotated, Literal

from state.engine.parameters import SWITCH, Milliseconds, OnlyWith, Parameters

PIP385 = OnlyWith("protocol", ("pip385",))
BLIND_AFTER_GAP_MS = 10_000
"""A bucket fills in one second, so this time covers a debt of nine seconds of its rate."""


class RateLimitsParameters(Parameters):
    """Parameters of the job rate_limits (spec: rate limits, sections 2 and 8)."""

    tokenbucket: Annotated[Literal["saturating", "wrapping", "per_tick"], SWITCH] = "saturating"
    release_condition: Annotated[Literal["target", "positive"], SWITCH] = "target"
    throttle_tracker: Annotated[Literal["per_type", "shared_counter"], SWITCH] = "per_type"
    limit_change: Annotated[Literal["immediate", "scheduled"], SWITCH] = "immediate"
    protocol: Annotated[
        Literal["none", "pip385"],
        SWITCH,
        OnlyWith("receipt_model", ("supported", "observed", "all")),
    ] = "none"
    receipt_model: Annotated[Literal["none", "supported", "observed", "all"], SWITCH, PIP385] = (
        "none"
    )
    broker_reason: Annotated[Literal["inform", "wait"], SWITCH, PIP385] = "inform"
    pause_rule: Annotated[Literal["pip", "model"], SWITCH, PIP385] = "pip"
    repeat_throttle: Annotated[Literal["replace", "max"], SWITCH, PIP385] = "replace"
    timeout_rule: Annotated[Literal["active", "seen"], SWITCH, PIP385] = "active"
    observed_pauses: Annotated[Literal["correct", "ignore"], SWITCH] = "correct"
    observed_wait_ms: Milliseconds = 1000
    extra_outputs: list[Literal["publish_verdicts"]] = []
    throttleProducerReceiptWaitTimeMillis: Annotated[Milliseconds, PIP385] = 100

    def blind_after_gap_ms(self, idle_state_ms: int) -> int:
        """The time until a bucket in debt is full again."""
        return BLIND_AFTER_GAP_MS
