"""The parameters of the job `client_quotas`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from state.engine.parameters import SWITCH, Parameters, Positive

Samples = Annotated[int, Field(ge=1, le=1000)]
Window = Annotated[int, Field(ge=1, le=86_400_000)]


class ClientQuotasParameters(Parameters):
    """Parameters of the job client_quotas; the windows are those of the brokers' configuration."""

    defects: Annotated[list[Literal["Q1"]], SWITCH] = []
    sampled_stat: Annotated[Literal["last_event", "start_time"], SWITCH] = "last_event"
    quota_kinds: Annotated[Literal["remembered", "in_force"], SWITCH] = "remembered"
    controller_enforcement: Annotated[Literal["strict", "permissive"], SWITCH] = "strict"
    broker_reports: Annotated[Literal["use", "ignore"], SWITCH] = "use"
    quota_window_num: Samples = 11
    quota_window_ms: Window = 1000
    controller_window_num: Samples = 11
    controller_window_ms: Window = 1000
    usage_rows: Positive = 1000
    extra_outputs: list[Literal["client_quota_verdicts"]] = []

    def blind_after_gap_ms(self, idle_state_ms: int) -> int:
        """The samples that a rate has, which may lack what came in the gap."""
        return max(
            (self.quota_window_num + 1) * self.quota_window_ms,
            (self.controller_window_num + 1) * self.controller_window_ms,
        )
