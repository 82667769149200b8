"""The effects of other policies as tables for reading, and as JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.terminal.printable import printable, say
from app.terminal.rows import ShownColumns, write_table
from app.whatif.effect.compare import (
    BY_NAME,
    MEASURES,
    OVER_TIME,
    Effects,
    Row,
    RowSum,
    pair,
    shown,
)
from app.whatif.replay.event_span import FIRST_MS, LAST_MS, EventSpan

if TYPE_CHECKING:
    from app.show.policy.policy_changes_text import LimitChange

SIDES = ("before", "after", "change")
LISTS = {
    "tenants": ("cluster", "tenant"),
    "topics": ("cluster", "topic"),
    "users": ("cluster", "user"),
    "clients": ("cluster", "client"),
}
"""Lists of an answer, and the columns that name a row of each."""
FEW = ShownColumns(first=(), rest="--json has")
PRINTED = 5
"""Rows of each that are printed."""


@dataclass(frozen=True)
class About:
    """What was compared."""

    before: str
    after: str
    span: EventSpan
    jobs: Sequence[str]
    begins: Sequence[str]
    """For each job, the rows that a longer past could change, in words."""
    changes: Sequence[LimitChange]
    """The limits that differ."""
    unlike: Sequence[str] = ()
    """How the side before differs from what happened."""


def named(name: str, row: Row) -> dict[str, Any]:
    """The columns that name a row of a list."""
    key = LISTS[name][1]
    return {"cluster": row["cluster"], key: row["tenant" if key == "tenant" else "name"]}


def plain(about: About, found: Effects) -> dict[str, Any]:
    """The whole answer as JSON."""
    return {
        "before": about.before,
        "after": about.after,
        "from_ms": None if about.span.begin_ms == FIRST_MS else about.span.begin_ms,
        "to_ms": None if about.span.end_ms == LAST_MS else about.span.end_ms,
        "jobs": list(about.jobs),
        "begins": list(about.begins),
        "limits": [change.plain() for change in about.changes],
        "same": found.same,
        "unlike_what_happened": list(about.unlike),
        "total": _measures(found.total),
        "changed": found.changed,
        **{
            name: [{**named(name, row), **_measures(row)} for row in getattr(found, name)]
            for name in LISTS
        },
        "times": [
            {
                "from_ms": row["at_ms"],
                "to_ms": row["until_ms"],
                **{name: _measure(row, BY_NAME[name]) for name in OVER_TIME},
            }
            for row in found.times
        ],
        "caches": found.caches,
    }


def _measures(row: Row) -> dict[str, dict[str, int | float]]:
    return {m.name: _measure(row, m) for m in MEASURES}


def _measure(row: Row, measure: RowSum) -> dict[str, int | float]:
    return dict(zip(SIDES, shown(row, measure), strict=True))


def changed_in(rows: Sequence[Row]) -> list[RowSum]:
    """The measures that differ in one of some rows."""
    return [m for m in MEASURES if any(len(set(pair(row, m.name))) > 1 for row in rows)]


def print_all(about: About, found: Effects, most: int = PRINTED) -> None:
    """Print what differs, of each list the first ones."""
    print(printable(f"{about.after} in place of {about.before}, {about.span.described()}"))
    for line in (*about.begins, *about.unlike):
        say(line)
    if found.same:
        say("\nnothing differs")
    measures = found.measures
    say()
    write_table(
        ["measure", *SIDES, "meaning"],
        [[m.name, *shown(found.total, m), m.meaning] for m in measures],
        sys.stdout,
        None,
        columns=ShownColumns(dict.fromkeys(SIDES, "measure")),
    )
    for name in LISTS:
        rows: list[Row] = getattr(found, name)
        if rows:
            _print_list(name, rows[:most], found.changed[name])
    if found.caches:
        say("\ncaches")
        names = list(found.caches[0])
        write_table(
            names, [[row[n] for n in names] for row in found.caches], sys.stdout, None, columns=FEW
        )


def _print_list(name: str, rows: Sequence[Row], every: int) -> None:
    """The rows of a list, each measure that differs with its value before and its change."""
    measures = changed_in(rows)
    columns = [*LISTS[name], *(f"{m.name}{end}" for m in measures for end in ("", "_change"))]
    cells = []
    for row in rows:
        numbers: list[int | float] = []
        for measure in measures:
            before, _, change = shown(row, measure)
            numbers += [before, change]
        cells.append([*named(name, row).values(), *numbers])
    say(f"\n{name} that differ: before, and the change")
    write_table(columns, cells, sys.stdout, None, columns=FEW)
    if every > len(rows):
        say(f"{len(rows):,} of {every:,} rows; --rows N shows more")
