"""The base class of a job's parameters: the model of its section of the configuration.

Cores and Python workers import neither this module nor pydantic: a core gets its resolved
parameters as a dictionary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

SWITCH = "switch"
"""Marks a version parameter: its value is in `switches` of the job's rows."""


@dataclass(frozen=True)
class OnlyWith:
    """Marks a parameter that changes a decision only with some values of another one, its own or of
    a variant; of several marks one has to hold."""

    key: str
    values: tuple[Any, ...]

    def __str__(self) -> str:
        return f" without {self.key} {' or '.join(map(str, self.values))}"

    def is_met(self, section: Parameters) -> bool:
        """Whether the other parameter has one of the values."""
        every = (section, *getattr(section, "variants", ()))
        return any(getattr(one, self.key, None) in self.values for one in every)


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

    def idle(self) -> Iterator[str]:
        """Parameters that differ from their defaults and change no decision, and what they need."""
        for name, field in type(self).model_fields.items():
            marks = [mark for mark in field.metadata if isinstance(mark, OnlyWith)]
            is_idle = marks and not any(mark.is_met(self) for mark in marks)
            if is_idle and getattr(self, name) != field.default:
                yield f"{field.alias or name}{marks[0]}"

    @classmethod
    def marked(cls, mark: object) -> tuple[str, ...]:
        """Names of the parameters with a mark, as `params` spells them."""
        return tuple(
            field.alias or name
            for name, field in cls.model_fields.items()
            if mark in field.metadata
        )
