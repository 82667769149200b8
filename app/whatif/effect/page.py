"""The effects of other policies as a page, drawn as a report is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from app.report.build import day
from app.report.charts import OTHERS, OWN, SHARED, bars, lines
from app.report.model import Chart, Column, Grid, Page, Row, Section, Tile
from app.report.page import html
from app.report.phrases import short
from app.report.text import number_text, seconds_text, time_text
from app.terminal.counts import counted
from app.whatif.effect.compare import BY_NAME, NS, OVER_TIME, Effects, Measure, pair, shown
from app.whatif.effect.words import LISTS, SIDES, About, changed_in, named

TILES = ("paused_s", "victims", "rejected_ids", "evicted_entries")
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
    before, after = pair(found.total, "paused_s")
    if before == after:
        return "Topics are paused as long as before; other numbers differ."
    change = "longer" if after > before else "less"
    return (
        f"Topics are paused {seconds_text(abs(after - before) / NS)} {change}: "
        f"{seconds_text(after / NS)} in place of {seconds_text(before / NS)}."
    )


def _tiles(found: Effects) -> list[Tile]:
    tiles = []
    for name in TILES:
        before, after, change = (number_text(v) for v in shown(found.total, BY_NAME[name]))
        worse = pair(found.total, name)[0] < pair(found.total, name)[1]
        tiles.append(
            Tile(_heading(BY_NAME[name]), after, f"before {before}, change {change}", worse)
        )
    return tiles


def _heading(measure: Measure) -> str:
    words = measure.name.removesuffix("_s").replace("_", " ")
    return f"{words} (s)" if measure.scale != 1 else words


def _whole(found: Effects) -> Section:
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
            Column("measure", "measure"),
            *(Column(side, side, "number") for side in SIDES),
            Column("meaning", "meaning"),
        ],
        rows,
    )
    return Section("whole", "In total", [], [grid, *_over_time(found)])


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


def _limits(about: About) -> Section:
    rows: list[Row] = [change.plain() for change in about.changes]
    grid = Grid(
        "Limits",
        [
            Column("scope", "scope"),
            Column("name", "name"),
            Column("limit", "limit"),
            Column("change", "change"),
            Column("before", "before"),
            Column("after", "after"),
            Column("where", "written in"),
        ],
        rows,
    )
    title = "Limits that differ"
    return Section("limits", title, [] if rows else ["No limit differs."], [grid] if rows else [])


def _list(name: str, found: Effects) -> Section:
    rows: Sequence[Row] = getattr(found, name)
    every = found.changed[name]
    if not rows:
        return Section(name, name.capitalize(), [f"No {name[:-1]} differs."])
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
    columns = [Column("cluster", "cluster"), Column(key, key, "topic")]
    columns += [
        Column(f"{m.name}_{side}", f"{_heading(m)}, {side}", "number")
        for m in measures
        for side in SIDES
    ]
    sentence = f"{counted(every, name[:-1])} {'differs' if every == 1 else 'differ'}."
    if every > len(rows):
        sentence += f" Shown: the greatest {counted(len(rows), 'change')}."
    grid = Grid(f"{name.capitalize()}, the greatest change first", columns, cells)
    return Section(name, name.capitalize(), [sentence], [*_bars(name, rows), grid])


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


def _caches(found: Effects) -> Section:
    columns = [Column("cluster", "cluster"), Column("policy", "eviction strategy")]
    columns += [
        Column(f"{name}_{side}", f"{name}, {side}", "number")
        for name in ("hits", "misses")
        for side in ("before", "after")
    ]
    return Section("caches", "Caches", [], [Grid("Reads of all brokers", columns, found.caches)])


def _begin(about: About) -> Section:
    sentences = [
        "Both sets of policies hold from the beginning of their replay. Windows that were "
        "open at the end of the range are left out.",
        *(s.strip() for s in about.begins),
        *about.unlike,
    ]
    return Section("begin", "Begin and end of the replays", sentences)
