"""A part of a scenario file: frozen, and unknown keys are refused."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

Share = Field(ge=0, le=1)


class Section(BaseModel):
    """One part of a scenario file."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def is_range(pair: tuple[float, float]) -> tuple[float, float]:
    """A pair of numbers, the second not below the first."""
    if not 0 <= pair[0] <= pair[1]:
        raise ValueError("is not a range of numbers from 0")
    return pair
