"""A part of a scenario file: frozen, with known keys only."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

Share = Field(ge=0, le=1)


class ScenarioSection(BaseModel):
    """One part of a scenario file."""

    model_config = ConfigDict(extra="forbid", frozen=True)
