"""The parameters of the job `producer_ids`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from state.engine.parameters import SWITCH, Parameters

BrokerKey = Annotated[int, Field(ge=1, lt=2**53)]


class ProducerIdsParameters(Parameters):
    """Parameters of the job producer_ids (KIP-936)."""

    model_config = ConfigDict(populate_by_name=True)

    profile: Literal["intended", "upstream"] = "intended"
    defects: Annotated[list[Literal["Q1"]], SWITCH] = []
    window_mode: Annotated[Literal["A", "B", "C", "L"], SWITCH] = "A"
    refresh_on_hit: Annotated[bool, SWITCH] = False
    membership: Annotated[Literal["bloom", "exact"], SWITCH] = "bloom"
    bloom_items: Annotated[int, Field(ge=1, le=10_000_000)] = 1000
    bloom_fpp: Annotated[float, Field(gt=0, lt=1)] = 0.01
    bloom_rounding: Annotated[Literal["ceil", "trunc"], SWITCH] = "ceil"
    enforcement: Annotated[Literal["strict", "permissive"], SWITCH] = "strict"
    insert_rejected: Annotated[bool, SWITCH] = False
    quota_math: Annotated[Literal["token_bucket", "sampled_rate"], SWITCH] = "token_bucket"
    sampled_stat: Annotated[Literal["last_event", "start_time"], SWITCH] = "last_event"
    rate_unit: Annotated[Literal["window", "second"], SWITCH] = "window"
    unlimited_default: Annotated[Literal["long", "int"], SWITCH] = "long"
    window_num: BrokerKey = Field(default=11, alias="producer.id.quota.window.num")
    window_seconds: BrokerKey = Field(default=3600, alias="producer.id.quota.window.size.seconds")
    window_count: BrokerKey = Field(default=4, alias="producer.id.quota.window.count")
    expiration_ms: BrokerKey = Field(default=86_400_000, alias="producer.id.expiration.ms")

    @model_validator(mode="after")
    def _one_choice(self) -> ProducerIdsParameters:
        if self.profile == "upstream" and self.defects:
            raise ValueError("defects: profile upstream turns all of them on; give one of the two")
        return self

    def params(self) -> dict[str, Any]:
        """The parameters that the job gets: defects by name, Kafka's settings by Kafka's names."""
        found = super().params()
        defects = ["Q1"] if found.pop("profile") == "upstream" else self.defects
        return {**found, "defects": defects}

    def blind_after_gap_ms(self, idle_state_ms: int) -> int:
        """The life of a filter, which may hold ids that came in the gap."""
        halves = 3 if self.window_mode in ("A", "C") else 2
        return (halves * self.window_seconds * 1000 + 1) // 2
