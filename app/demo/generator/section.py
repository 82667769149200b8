"""A part of a scenario file: frozen, and unknown keys are refused."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from app.config.base import in_unit

Share = Field(ge=0, le=1)


class ScenarioSection(BaseModel):
    """One part of a scenario file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _durations(cls, document: Any) -> Any:
        """Keys of milliseconds and seconds, and pairs of them, may be written as durations."""
        if not isinstance(document, dict):
            return document
        return {
            key: [in_unit(key, each, whole=False) for each in value]
            if isinstance(value, list)
            else in_unit(key, value, whole=False)
            for key, value in document.items()
        }


def is_range(pair: tuple[float, float]) -> tuple[float, float]:
    """A pair of numbers, the second not below the first."""
    if not 0 <= pair[0] <= pair[1]:
        raise ValueError("is not a range of numbers from 0")
    return pair
