"""The parameters of the job `chunks`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, model_validator

from state.chunks.expiry import longest_life_ms
from state.engine.parameters import SWITCH, Parameters, Section

Defect = Literal["B1", "B2", "B3", "B4", "B7", "B8"]
DEFECTS: tuple[Defect, ...] = ("B1", "B2", "B3", "B4", "B7", "B8")


MostPending = Annotated[int, Field(ge=-(2**31), lt=2**31)]
Pattern = Annotated[str, Field(min_length=1)]


class ConsumerParameters(Section):
    """What consumers set otherwise; patterns of their names as in policies."""

    topic: Pattern = "**"
    subscription: Pattern = "**"
    consumer: Pattern = "**"
    maxPendingChunkedMessage: MostPending


class ChunksParameters(Parameters):
    """Parameters of the job chunks (PIP-37, and the client settings of the same names)."""

    profile: Literal["intended", "upstream"] = "intended"
    defects: Annotated[list[Defect], SWITCH] = []
    first_dup: Annotated[Literal["restart", "lose"], SWITCH] = "restart"
    shared_mode: Annotated[Literal["pin", "hash", "marker"], SWITCH] = "pin"
    shared_orphan: Annotated[Literal["stall", "ack_skip", "dispatch"], SWITCH] = "stall"
    maxPendingChunkedMessage: Annotated[
        MostPending,
        Field(
            validation_alias=AliasChoices("maxPendingChunkedMessage", "maxPendingChuckedMessage"),
        ),
    ] = 10
    autoAckOldestChunkedMessageOnQueueFull: bool = False
    expireTimeOfIncompleteChunkedMessageMillis: Annotated[int, Field(lt=2**53)] = 60_000
    consumers: list[ConsumerParameters] = []
    assemble_payload: bool = False
    max_payload_bytes: Annotated[int, Field(ge=1, le=2**31 - 2**16)] = 134_217_728
    inline_payload_bytes: Annotated[int, Field(ge=0, le=2**20)] = 65_536
    max_bytes: Annotated[int, Field(ge=0, le=2**30)] = 8_388_608
    max_shard_bytes: Annotated[int, Field(ge=0, le=2**30)] = 67_108_864

    @model_validator(mode="after")
    def _one_choice(self) -> ChunksParameters:
        if self.profile == "upstream" and self.defects:
            raise ValueError("defects: profile upstream turns all of them on; give one of the two")
        return self

    def params(self) -> dict[str, Any]:
        """The parameters that the job gets: defects by name, in their order."""
        found = super().params()
        chosen = DEFECTS if found.pop("profile") == "upstream" else self.defects
        return {**found, "defects": [d for d in DEFECTS if d in chosen]}

    def blind_after_gap_ms(self, idle_state_ms: int) -> int:
        """The time for which a client keeps a message that began in the gap."""
        return longest_life_ms(self.expireTimeOfIncompleteChunkedMessageMillis, idle_state_ms)
