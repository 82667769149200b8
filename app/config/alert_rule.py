"""An alert rule: its condition (SQL over the tables), its duration and its summary."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from app.config.base import Model
from app.terminal.moments import DURATIONS, duration_ms

Text = Annotated[str, Field(min_length=1)]
Severity = Literal["critical", "warning", "info"]
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")


def duration_of(value: Any) -> Any:
    """Milliseconds of a duration such as 90s, 5m or 1h30m; a whole number is returned unchanged."""
    return duration_ms(value) if isinstance(value, str) else value


class Rule(Model):
    """One rule. docs/alerts.md documents the keys."""

    model_config = ConfigDict(populate_by_name=True)

    name: Text
    sql: Text
    """Returns start_ms, end_ms, value, labels, and further columns for the summary."""
    now: Text
    """SQL that returns the time that the tables have reached (ms since the epoch; null while they
    are empty), or the name of a table of windows.
    """
    for_ms: Annotated[int, Field(ge=0), BeforeValidator(duration_of)] = Field(0, alias="for")
    severity: Severity
    """Of rows without a column `severity` of their own."""
    summary: Text
    """Braces name labels and other columns, `since`, `until`, `seconds` and `value`."""
    runbook: str = ""
    labels: list[Text] | None = None
    """Columns that identify an alert; None: all but start_ms, end_ms and value."""
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    """Number of alerts of the rule that are kept at a time."""

    @model_validator(mode="before")
    @classmethod
    def _with_unit(cls, document: Any) -> Any:
        """The key `for` has no unit in its name: a plain number is refused."""
        value = document.get("for") if isinstance(document, dict) else None
        if isinstance(value, int) and value:
            raise ValueError(f"for: {value!r} has no unit (allowed: {DURATIONS})")
        return document

    @field_validator("name")
    @classmethod
    def _plain(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is not a name (allowed: a letter, then up to 99 of A-Z a-z 0-9 _ . -)"
            )
        return name
