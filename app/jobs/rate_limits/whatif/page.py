"""The page of suggested limits: curves and rows, as one HTML file that loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import altair as alt

from app.show.report.charts import strokes, values
from app.show.report.model import Chart, Fold, Frame, Grid, GridColumn, Page, ReportSection, Tile
from app.show.report.page import html
from app.show.report.phrases import short
from app.terminal.amounts import percent_text
from app.terminal.counts import counted
from app.terminal.outputs import write_whole

if TYPE_CHECKING:
    from app.jobs.rate_limits.whatif.command import PublishRequest, SuggestedLimits, Suggestion
    from app.jobs.rate_limits.whatif.history import Rate

DRAWN = 8
"""Most names in a chart, so that the lines can be told apart."""
LISTED = 500
"""Most names in the table."""
Row = dict[str, Any]


def write_page(found: SuggestedLimits, out: Path) -> None:
    """Write the page."""
    write_whole(out, html(page(found), ""), "--page")


def page(found: SuggestedLimits) -> Page:
    """The content of the page."""
    asked, limited = found.asked, {one.name for one in found.suggestions}
    verdict = f"Limits on {' and '.join(asked.rates)} for {counted(len(limited), asked.per)}"
    sections = []
    for rate in asked.rates:
        mine = [one for one in found.suggestions if one.rate == rate]
        sections.append(_limits(asked, rate, mine))
        if mine:
            sections.append(_curves(asked, rate, mine))
    without = {name for one in found.left_out for name in one.names}
    if found.left_out:
        sections.append(
            ReportSection(
                "left-out",
                "Without a limit",
                [f"{counted(len(one.names), asked.per)}: {one.reason}." for one in found.left_out],
                [Fold(one.reason, "\n".join(one.names)) for one in found.left_out],
            )
        )
    return Page(
        "Suggested limits",
        found.covers,
        verdict,
        [
            Tile("throttled at most", percent_text(asked.share)),
            Tile("headroom", percent_text(asked.headroom)),
            Tile("without a limit", f"{len(without - limited):,}"),
        ],
        sections,
    )


def _limits(asked: PublishRequest, rate: Rate, found: Sequence[Suggestion]) -> ReportSection:
    columns = [
        GridColumn("name", asked.per, "topic"),
        GridColumn("limit", f"suggested ({rate}/s)", "number"),
        GridColumn("in_force", "in force", "number"),
        GridColumn("change", "change"),
        GridColumn("decided_by", "decided by"),
        GridColumn("without", "without it", "number"),
        GridColumn("throttled_share", "throttled", "ratio"),
        GridColumn("victim_s", "others paused", "seconds"),
        GridColumn("needed", "smallest", "number"),
    ]
    rows = [one.row() for one in found]
    sentences = [
        f"Under its smallest limit at most {percent_text(asked.share)} of the {rate} of each"
        f" {asked.per} are throttled: they are part of a publish that leaves a balance of 0 or"
        " less.",
        "Others paused: time that other topics with a producer on a paused connection wait, summed"
        " over these topics, when no other limit pauses.",
    ]
    if len(rows) > LISTED:
        sentences.append(f"The table omits {len(rows) - LISTED:,} with smaller limits.")
    if len({row["cluster"] for row in rows}) > 1:
        columns.append(GridColumn("cluster", "cluster"))
    if any(row["decided_by"] for row in rows):
        sentences.append(
            "Decided by: one publish, or a storm, which is what is published in minutes with more"
            " than ten times the median, in one stretch or two. Without it two thirds of the"
            " suggestion or less are enough."
        )
    if any("alone" in row for row in rows):
        columns.append(GridColumn("alone", "alone", "number"))
        sentences.append(
            f"Alone: what would suffice without the other limit. Throttled: under the"
            f" suggested limits on {' and '.join(asked.rates)} together."
        )
    grid = Grid(f"Smallest and suggested limits on {rate}", columns, rows[:LISTED])
    return ReportSection(f"limits-{rate}", f"Limits on {rate}", sentences, [grid])


def _curves(asked: PublishRequest, rate: Rate, found: Sequence[Suggestion]) -> ReportSection:
    drawn = sorted(found, key=lambda one: -one.limit)[:DRAWN]
    names = _labels([(one.cluster, one.name) for one in drawn])
    rows = [
        {
            "name": names[one.cluster, one.name],
            "limit": p.limit,
            "throttled": 100 * p.throttled_share,
            "victims": p.victim_s,
        }
        for one in drawn
        for p in one.curve
    ]
    marks = [
        {
            "name": names[one.cluster, one.name],
            "limit": one.limit,
            "throttled": 100 * one.throttled_share,
            "victims": one.victim_s,
        }
        for one in drawn
    ]

    def chart(field: str, title: str) -> Any:
        def draw(points: Sequence[Row], frame: Frame) -> alt.TopLevelMixin:
            return _lines(points, marks, frame, field, title, f"limit ({rate}/s)")

        return draw

    more = "" if len(found) <= DRAWN else f" The {DRAWN} {asked.per}s with the largest limits."
    return ReportSection(
        f"curves-{rate}",
        f"Other limits on {rate}",
        [f"The suggested limits are the diamonds.{more}"],
        [
            Chart(
                f"Throttled share by limit on {rate}",
                f"Share of a {asked.per}'s own {rate}.",
                rows,
                chart("throttled", "throttled (%)"),
            ),
            Chart(
                f"Time of others by limit on {rate}",
                "Time that other topics are paused with it.",
                rows,
                chart("victims", "others paused (s)"),
            ),
        ],
    )


def _labels(names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """A label for each name, with its cluster where there are several."""
    several = len({cluster for cluster, _ in names}) > 1
    found: dict[tuple[str, str], str] = {}
    for cluster, name in names:
        label = f"{short(name)} ({cluster})" if several else short(name)
        while label in found.values():
            label += "'"
        found[cluster, name] = label
    return found


def _lines(
    rows: Sequence[Row], marks: Sequence[Row], frame: Frame, field: str, title: str, below: str
) -> alt.TopLevelMixin:
    names = list(dict.fromkeys(row["name"] for row in rows))
    inks, dashes = strokes(names, frame)
    x = alt.X(
        "limit:Q",
        title=below,
        scale=alt.Scale(type="log", nice=False),
        axis=alt.Axis(format=".2~s", tickCount=4 if frame.narrow else 8, grid=False),
    )
    y = alt.Y(f"{field}:Q", title=title, scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=5))
    base = alt.Chart(values(rows)).encode(x=x, y=y, color=inks)
    return alt.layer(
        base.mark_line(strokeWidth=2).encode(strokeDash=dashes),
        base.mark_point(filled=True, size=20),
        alt.Chart(values(marks))
        .mark_point(shape="diamond", size=90, filled=False, strokeWidth=2)
        .encode(x=x, y=y, color=inks),
    ).properties(width=frame.width, height=220)
