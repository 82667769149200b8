"""An alert rule: its condition (SQL over the tables), its duration and its summary."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from app.config.base import Model, Positive, Text
from app.terminal.moments import DURATIONS, duration_ms
from app.terminal.phrases import NAMED
from app.terminal.templates import checked, columns

Sentence = Annotated[str, Field(min_length=1), AfterValidator(checked)]
Severity = Literal["critical", "warning", "info"]
COUNTED = ("more", "was", "are")
"""What the sentence about further rows has: their number, and the verbs after it."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")


def duration_of(value: Any) -> Any:
    """Milliseconds of a duration such as 90s, 5m or 1h30m; a whole number is returned unchanged."""
    return duration_ms(value) if isinstance(value, str) else value


Duration = Annotated[int, Field(ge=0), BeforeValidator(duration_of)]


class FindingRule(Model):
    """What reports say of the rows of a rule. docs/alerts.md documents the keys."""

    sql: Text | None = None
    """Returns a row for each sentence, the most important first; None: the answer of the question, or
    for each alert that there was its newest row with its greatest value and first start, the greatest
    value first.
    """
    question: Text | None = None
    """A ready question, whose rows the SQL reads as `answer`."""
    says: Sentence
    more: Sentence | None = None
    """Of the rows after the first `most`, whose number is `more`."""
    do: Sentence | None = None
    """An order; nothing is to be done about a row for which it is empty."""
    because: Sentence | None = None
    urgency: Literal["deadline", "loss", "others", "own"] = "own"
    most: Positive = NAMED
    """Number of rows that have a sentence of their own."""
    place: int = 100
    """Findings of lower places come first."""

    @field_validator("more")
    @classmethod
    def _counted(cls, more: str | None) -> str | None:
        if other := [name for name in columns(more or "") if name not in COUNTED]:
            raise ValueError(f"{{{other[0]}}} is not known there (allowed: {', '.join(COUNTED)})")
        return more

    @model_validator(mode="after")
    def _with_reason(self) -> FindingRule:
        if (self.do is None) != (self.because is None):
            raise ValueError("do: needs because, and because needs do")
        return self


class PrometheusRule(Model):
    """A rule for Prometheus about the same fact, with the name and the runbook of the rule."""

    model_config = ConfigDict(populate_by_name=True)

    expr: Text
    for_ms: Annotated[Duration | None, Field(alias="for")] = None
    """None: as long as the rule."""
    severity: Severity | None = None
    """None: that of the rule."""
    stage: str = ""
    """A label that tells it from others of the same severity."""
    summary: Text


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
    for_ms: Annotated[Duration, Field(alias="for")] = 0
    severity: Severity
    """Of rows without a column `severity` of their own."""
    summary: Text
    """Braces name labels and other columns, `since`, `until`, `seconds` and `value`."""
    runbook: str = ""
    labels: list[Text] | None = None
    """Columns that identify an alert; None: all but start_ms, end_ms and value."""
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    """Number of alerts of the rule that are kept at a time."""
    finding: FindingRule | None = None
    prometheus: list[PrometheusRule] = []
    """Of shipped rules: what conf/prometheus/weir.rules.yml is written from."""

    @model_validator(mode="before")
    @classmethod
    def _with_unit(cls, document: Any) -> Any:
        """The key `for` has no unit in its name: a plain number is refused."""
        value = document.get("for") if isinstance(document, dict) else None
        if isinstance(value, int) and value:
            raise ValueError(f"for: {value!r} has no unit (allowed: {DURATIONS})")
        return document

    @model_validator(mode="after")
    def _with_labels(self) -> Rule:
        """The rows of an alert are told apart by its labels."""
        asks = self.finding is None or self.finding.sql or self.finding.question
        if not asks and not self.labels:
            raise ValueError("finding.sql: is needed where the rule has no labels")
        return self

    @field_validator("name")
    @classmethod
    def _plain(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is not a name (allowed: a letter, then up to 99 of A-Z a-z 0-9 _ . -)"
            )
        return name
