"""What a page is made of, before it is HTML or JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import altair as alt

    from app.show.report.report_reader import ReportReader

Row = dict[str, Any]


@dataclass(frozen=True)
class GridColumn:
    """A column of a grid: the key in its rows, the heading, and how values are written."""

    key: str
    heading: str
    kind: str = "text"
    """text, topic, number, ratio, seconds, ms, bytes, rate, time, list, flag, runbook; curve; told, of
    which `explain` tells more; hour or day: when something held, as pairs of times (ms), the last of which
    may be open."""


@dataclass(frozen=True)
class Grid:
    """Rows for reading; `more` is what to ask the command `query` for all of them."""

    title: str
    columns: Sequence[GridColumn]
    rows: Sequence[Row]
    """What `explain` has to be asked about a row is its value `explain`, if it has one."""
    more: str = ""
    folded: bool = False
    """Shown when it is asked for."""


@dataclass(frozen=True)
class Frame:
    """The room that a chart has (pixels)."""

    width: int
    narrow: bool


@dataclass(frozen=True)
class Chart:
    """A chart of some rows; `note` explains how to read it."""

    title: str
    note: str
    rows: Sequence[Row]
    draw: Callable[[Sequence[Row], Frame], alt.TopLevelMixin]


def filled(*parts: Grid | Chart) -> list[Grid | Chart]:
    """Those that have rows."""
    return [part for part in parts if part.rows]


@dataclass(frozen=True)
class Fold:
    """A text that is shown when it is asked for."""

    title: str
    text: str


@dataclass(frozen=True)
class Link:
    """Another page, by a path relative to this one or an address."""

    text: str
    target: str


@dataclass(frozen=True)
class Runbook:
    """A runbook, which is shown when it is asked for."""

    title: str
    text: str
    """Markdown."""


Part = Grid | Chart | Fold | Link | Runbook


@dataclass(frozen=True)
class Tile:
    """A number for the first screen; `bad` asks for attention."""

    label: str
    value: str
    note: str = ""
    bad: bool = False


@dataclass(frozen=True)
class ReportSection:
    """One question and its answer; without parts the sentences give the reason."""

    key: str
    title: str
    sentences: Sequence[str]
    parts: Sequence[Part] = ()
    tile: Tile | None = None
    verdict: str = ""
    """What the first sentence of the page says of it: a clause; empty if it is nothing."""


@dataclass(frozen=True)
class JobSection:
    """A section that a job declares, and its place on the page."""

    place: int
    make: Callable[[ReportReader], ReportSection]
    tables: Sequence[str]
    """What it shows: while none of them was ever written to, the page is without it."""


class Urgency(IntEnum):
    """How soon something is to be done; the first is the most urgent."""

    DEADLINE = 0
    """Something is lost or refused from a known time on."""
    LOSS = 1
    """Something was lost or refused."""
    OTHERS = 2
    """Others suffer."""
    OWN = 3
    """Only its cause does."""


@dataclass(frozen=True)
class Action:
    """What to do about a finding, and whose it is."""

    remedy: str
    """An order, from its verb to before its full stop."""
    reason: str
    """Why, in a clause."""
    urgency: Urgency
    by_ms: int | None = None
    """When it is too late (ms since the epoch)."""
    lasts: bool = False
    """Whether it holds at the end of what is known."""
    cluster: str | None = None
    topic: str | None = None
    user: str | None = None
    """The topic or user whose owner it concerns."""
    runbook: str = ""
    """Its page, as alert rules name it."""


@dataclass(frozen=True)
class Finding:
    """What happened, in a sentence, and what to do about it."""

    sentence: str
    actions: Sequence[Action] = ()


@dataclass(frozen=True)
class JobFindings:
    """What a job has found, and its place among what the others have found."""

    place: int
    findings: Callable[[ReportReader], list[Finding]]
    rule: str = ""
    """The alert rule whose facts these are; empty: of several facts."""
    unless: Sequence[str] = ()
    """Rules with an earlier place: said only where none of them tells anything."""


@dataclass(frozen=True)
class Page:
    """The whole report."""

    title: str
    covers: str
    verdict: str
    tiles: Sequence[Tile]
    sections: Sequence[ReportSection]
    actions: Grid | None = None
    """What to do, the most urgent first."""
    asked: str = ""
    """What a command that asks for the rows of this page ends with."""
    facts: Row = field(default_factory=dict)
    """Warehouse, times and hashes, as JSON has them."""
