"""The effects of other policies as a page, drawn as a report is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from app.show.report.build import day
from app.show.report.charts import OTHERS, OWN, SHARED, bars, lines
from app.show.report.model import Chart, Grid, GridColumn, Page, ReportSection, Row, Tile
from app.show.report.page import html
from app.show.report.text import time_text
from app.terminal.amounts import number_text, seconds_text
from app.terminal.counts import counted
from app.terminal.phrases import short
from app.whatif.effect.compare import BY_NAME, OVER_TIME, Effects, RowSum, pair, shown
from app.whatif.effect.effect_text import LISTS, SIDES, About, changed_in, named

TILES = ("paused_s", "victims", "rejected_ids", "evicted_entries", "client_throttle_s")
BARS = 8
"""Tenants of a picture."""
KINDS = {OWN: "paused_own_s", SHARED: "paused_shared_s", OTHERS: "paused_others_s"}


def html_of(about: About, found: Effects) -> str:
    """The page as HTML."""
    times = found.times
    facts: Row = {
        "from_ms": times[0]["at_ms"] if times else None,
        "to_ms": times[-1]["until_ms"] if times else None,
    }
    sections = [_whole(found), _limits(about), *(_list(name, found) for name in LISTS)]
    if found.caches:
        sections.append(_caches(found))
    page = Page(
        "Weir policy diff",
        _covers(about, facts),
        _verdict(found),
        _tiles(found),
        [*sections, _begin(about)],
        facts=facts,
    )
    return html(page, day(page))


def _covers(about: About, facts: Row) -> str:
    text = f"{about.after} in place of {about.before}, {about.span.described()}"
    if facts["from_ms"] is None:
        return f"{text}."
    return (
        f"{text}. Decisions and windows from {time_text(facts['from_ms'])} to "
        f"{time_text(facts['to_ms'])}."
    )


def _verdict(found: Effects) -> str:
    if found.same:
        return "Nothing differs."
    for name, text in (
        ("paused_s", "Topics are paused"),
        ("client_throttle_s", "Clients are throttled"),
    ):
        before, after, change = shown(found.total, BY_NAME[name])
        if change:
            return (
                f"{text} {seconds_text(abs(change))} {'longer' if change > 0 else 'less'}: "
                f"{seconds_text(after)} in place of {seconds_text(before)}."
            )
    return "Topics and clients wait as long as before; other numbers differ."


def _tiles(found: Effects) -> list[Tile]:
    tiles = []
    for name in [m.name for m in found.measures if m.name in TILES] or TILES:
        before, after, change = (number_text(v) for v in shown(found.total, BY_NAME[name]))
        worse = pair(found.total, name)[0] < pair(found.total, name)[1]
        tiles.append(
            Tile(_heading(BY_NAME[name]), after, f"before {before}, change {change}", worse)
        )
    return tiles


def _heading(measure: RowSum) -> str:
    words = measure.name.removesuffix("_s").replace("_", " ")
    return f"{words} (s)" if measure.scale != 1 else words


def _whole(found: Effects) -> ReportSection:
    rows: list[Row] = [
        {
            "measure": _heading(m),
            **dict(zip(SIDES, shown(found.total, m), strict=True)),
            "meaning": m.meaning,
        }
        for m in found.measures
    ]
    grid = Grid(
        "All measures that are not 0",
        [
            GridColumn("measure", "measure"),
            *(GridColumn(side, side, "number") for side in SIDES),
            GridColumn("meaning", "meaning"),
        ],
        rows,
    )
    return ReportSection("whole", "In total", [], [grid, *_over_time(found)])


def _over_time(found: Effects) -> list[Chart]:
    charts = []
    for name in OVER_TIME:
        measure = BY_NAME[name]
        rows: list[Row] = [
            {"at": row["at_ms"], "name": side, "value": measure.shown(value)}
            for row in found.times
            for side, value in zip(("before", "after"), pair(row, name), strict=True)
        ]
        if any(row["value"] for row in rows):
            title = _heading(measure)
            charts.append(
                Chart(
                    title.capitalize(),
                    f"Over time: {measure.meaning}.",
                    rows,
                    partial(lines, title=title),
                )
            )
    return charts


def _limits(about: About) -> ReportSection:
    rows: list[Row] = [change.plain() for change in about.changes]
    grid = Grid(
        "Limits",
        [
            GridColumn("scope", "scope"),
            GridColumn("name", "name"),
            GridColumn("limit", "limit"),
            GridColumn("change", "change"),
            GridColumn("before", "before"),
            GridColumn("after", "after"),
            GridColumn("where", "written in"),
        ],
        rows,
    )
    return ReportSection(
        "limits",
        "Limits that differ",
        [] if rows else ["No limit differs."],
        [grid] if rows else [],
    )


def _list(name: str, found: Effects) -> ReportSection:
    rows: Sequence[Row] = getattr(found, name)
    every = found.changed[name]
    if not rows:
        return ReportSection(name, name.capitalize(), [f"No {name[:-1]} differs."])
    key = LISTS[name][1]
    measures = changed_in(rows)
    cells: list[Row] = []
    for row in rows:
        cell = named(name, row)
        for measure in measures:
            cell |= {
                f"{measure.name}_{side}": value
                for side, value in zip(SIDES, shown(row, measure), strict=True)
            }
        cells.append(cell)
    columns = [GridColumn("cluster", "cluster"), GridColumn(key, key, "topic")]
    columns += [
        GridColumn(f"{m.name}_{side}", f"{_heading(m)}, {side}", "number")
        for m in measures
        for side in SIDES
    ]
    sentence = f"{counted(every, name[:-1])} {'differs' if every == 1 else 'differ'}."
    if every > len(rows):
        sentence += f" Shown: the greatest {counted(len(rows), 'change')}."
    grid = Grid(f"{name.capitalize()}, the greatest change first", columns, cells)
    return ReportSection(name, name.capitalize(), [sentence], [*_bars(name, rows), grid])


def _bars(name: str, rows: Sequence[Row]) -> list[Chart]:
    """Paused time before and after, by class of the pause."""
    drawn: list[Row] = []
    for row in rows[:BARS]:
        about = short(str(list(named(name, row).values())[1] or "none"))
        for side in ("before", "after"):
            drawn += [
                {
                    "name": f"{row['cluster']} {about}, {side}",
                    "kind": kind,
                    "value": BY_NAME[column].shown(row[f"{column}_{side}"]),
                }
                for kind, column in KINDS.items()
            ]
    if not any(row["value"] for row in drawn):
        return []
    return [
        Chart(
            f"Paused time of {name}",
            "By whose limit it was.",
            drawn,
            lambda rows, frame: bars(rows, frame, "paused (s)", list(KINDS)),
        )
    ]


def _caches(found: Effects) -> ReportSection:
    columns = [GridColumn("cluster", "cluster"), GridColumn("policy", "eviction strategy")]
    columns += [
        GridColumn(f"{name}_{side}", f"{name}, {side}", "number")
        for name in ("hits", "misses")
        for side in ("before", "after")
    ]
    return ReportSection(
        "caches", "Caches", [], [Grid("Reads of all brokers", columns, found.caches)]
    )


def _begin(about: About) -> ReportSection:
    sentences = [
        "Both sets of policies hold from the beginning of their replay. Windows that were "
        "open at the end of the range are left out.",
        *(s.strip() for s in about.begins),
        *about.unlike,
    ]
    return ReportSection("begin", "Begin and end of the replays", sentences)
