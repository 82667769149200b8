"""The base class of a job's parameters: the model of its section of the configuration.

Cores and Python workers import neither this module nor pydantic: a core gets its resolved
parameters as a dictionary.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

SWITCH = "switch"
"""Marks a version parameter: its value is in `switches` of the job's rows."""
WITHOUT_EFFECT = "without effect"
"""Marks a parameter that is accepted and changes no decision."""
Milliseconds = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """A mapping with known keys only."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Parameters(Section):
    """Parameters of one job, with their defaults."""

    def params(self) -> dict[str, Any]:
        """The parameters for the core; `extra_outputs` names tables that are off by default."""
        return {"extra_outputs": [], **self.model_dump(by_alias=True)}

    def blind_after_gap_ms(self, idle_state_ms: int) -> int:
        """Time after a gap (ms) in which the job may differ from a broker; 0 if nothing depends on
        earlier records.
        """
        return 0

    @classmethod
    def marked(cls, mark: str) -> tuple[str, ...]:
        """Names of the parameters with a mark, as `params` spells them."""
        return tuple(
            field.alias or name
            for name, field in cls.model_fields.items()
            if mark in field.metadata
        )
