"""Charts of a report: colours that follow the page, and their drawing as SVG without a browser.

Colours are the page's CSS variables, so that one drawing serves light and dark. Vega cannot mix
those, hence every scale has its steps written out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import altair as alt
from altair.utils import schemapi

from app.show.report.model import Chart, Frame, Row
from app.terminal.printable import printable
from app.terminal.secrets import with_texts

if TYPE_CHECKING:
    from collections.abc import Mapping

COLOURS = tuple(f"var(--c{n})" for n in range(1, 9))
HEAT = tuple(f"var(--heat{n})" for n in range(1, 6))
ON_HEAT = tuple(f"var(--on-heat{n})" for n in range(1, 6))
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 2], [1, 3], [10, 4], [5, 2, 1, 2])
"""Lines differ in their dashes as well as in their colour."""
TIME_FORMATS = ((900_000, "%H:%M:%S"), (86_400_000, "%H:%M"), (864_000_000, "%m-%d %H:%M"))
"""How times are shown on an axis that is at most so long (ms)."""
OWN, SHARED, OTHERS = "own limit", "shared limit", "others' limits"
WIDE, NARROW = Frame(860, False), Frame(330, True)
INK, MUTED, LINE = "var(--ink)", "var(--muted)", "var(--line)"
MEASURED = 13
"""Vega makes room for text of this size (pixels); the page shows it smaller, since its font may be
wider than the one that Vega knows."""
CONFIG: Mapping[str, Any] = {
    # The figure has a caption; a label on every mark would be most of the page.
    "aria": False,
    "background": "transparent",
    "font": "sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": MUTED,
        "titleColor": MUTED,
        "gridColor": LINE,
        "domainColor": LINE,
        "tickColor": LINE,
        "labelFontSize": MEASURED,
        "titleFontSize": MEASURED,
        "titleFontWeight": "normal",
    },
    "header": {"labelColor": MUTED, "titleColor": MUTED},
    "legend": {
        "labelColor": INK,
        "titleColor": MUTED,
        "labelFontSize": MEASURED,
        "titleFontSize": MEASURED,
        "titleFontWeight": "normal",
        "orient": "top",
    },
}


def svg(chart: Chart, frame: Frame) -> str:
    """A chart as SVG for one width of page; nothing is loaded for it."""
    import vl_convert

    with schemapi.debug_mode(False):  # checking each part takes as long as making it
        drawn = chart.draw(chart.rows, frame).to_dict(validate=False)
    # Some characters end the process or the chart: those that XML does not have, and line
    # separators, which Vega reads in its own expressions.
    spec = with_texts(printable, drawn)
    spec["config"] = CONFIG
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    return str(vl_convert.vegalite_to_svg(spec, allowed_base_urls=[]))


Layers = alt.LayerChart | alt.FacetChart
"""What Altair's `layer` returns."""


def values(rows: Sequence[Row]) -> alt.Data:
    """Rows as the data of a chart: a tuple, which Altair copies no more with each part of a chart."""
    return alt.Data(values=tuple(rows))


def ending(most: int) -> str:
    """A Vega expression: a label without its middle where it is longer than `most`. The head of a
    topic has its tenant and namespace, its end distinguishes it from the others."""
    head = (most - 1) // 2
    return (
        f"length(datum.label) > {most} ? slice(datum.label, 0, {head}) + '…' +"
        f" slice(datum.label, {head + 1 - most}) : datum.label"
    )


def named_axis(frame: Frame) -> alt.Axis:
    """An axis of names."""
    return alt.Axis(
        title=None,
        grid=False,
        ticks=False,
        domain=False,
        labelLimit=0,
        labelPadding=6,
        labelExpr=ending(20 if frame.narrow else 40),
    )


def time_axis(rows: Sequence[Row], frame: Frame) -> alt.X:
    """The axis of event time; rows hold ms since the epoch in `at`."""
    times = [row["at"] for row in rows]
    span_ms = max(times) - min(times)
    shown = next((text for most, text in TIME_FORMATS if span_ms <= most), "%Y-%m-%d")
    count = (3 if len(shown) > 5 else 4) if frame.narrow else 8
    return alt.X(
        "at:T",
        scale=alt.Scale(type="utc"),
        axis=alt.Axis(title="UTC", tickCount=count, grid=False, format=shown, labelOverlap=True),
    )


def legend(frame: Frame, names: Sequence[str]) -> alt.Legend:
    """A legend above the chart, in as many columns as fit."""
    most = 26 if frame.narrow else 60
    longest = min(max((len(name) for name in names), default=1), most)
    # the page's font may be wider than the one that Vega knows: an entry too many would be cut off
    room = max(1, int(frame.width // (longest * 8.5 + 44)))
    return alt.Legend(
        title=None,
        columns=min(room, max(1, len(names))),
        labelLimit=0,
        labelExpr=ending(most),
        symbolStrokeWidth=3,
    )


def colour(
    field: str, names: Sequence[str], frame: Frame, tones: Sequence[str] = COLOURS
) -> alt.Color:
    """A colour for each name, with a legend."""
    scale = alt.Scale(domain=list(names), range=[tones[i % len(tones)] for i in range(len(names))])
    return alt.Color(f"{field}:N", scale=scale, legend=legend(frame, names))


def strokes(names: Sequence[str], frame: Frame) -> tuple[alt.Color, alt.StrokeDash]:
    """A colour and dashes for the line of each `name`, in one legend."""
    key = alt.Legend(
        **{**legend(frame, names).to_dict(), "symbolType": "stroke", "symbolSize": 300}
    )
    inks, dashes = ([steps[i % 8] for i in range(len(names))] for steps in (COLOURS, DASHES))
    return (
        alt.Color("name:N", scale=alt.Scale(domain=list(names), range=inks), legend=key),
        alt.StrokeDash("name:N", scale=alt.Scale(domain=list(names), range=dashes), legend=key),
    )


def lines(rows: Sequence[Row], frame: Frame, title: str) -> Layers:
    """A line for each `name` over time `at`: `value`; rows with `forecast` are drawn lighter."""
    names = list(dict.fromkeys(row["name"] for row in rows))
    own = alt.Chart(values([r for r in rows if not r.get("forecast")]))
    x = time_axis(rows, frame)
    inks, dashes = strokes(names, frame)
    y = alt.Y(
        "value:Q", title=title, scale=alt.Scale(zero=True, nice=True), axis=alt.Axis(tickCount=5)
    )
    drawn: list[Any] = [
        own.mark_line(strokeWidth=2.2).encode(x=x, y=y, color=inks, strokeDash=dashes),
        own.mark_point(filled=True, size=22, opacity=1).encode(x=x, y=y, color=inks),
    ]
    ahead = [r for r in rows if r.get("forecast")]
    if ahead:
        later = alt.Chart(values(ahead))
        drawn.append(
            later.mark_line(strokeWidth=1.6, strokeDash=[2, 4]).encode(x=x, y=y, color=inks)
        )
        drawn.append(
            later.transform_filter("datum.arrives")
            .mark_point(shape="diamond", size=70, filled=False, strokeWidth=2)
            .encode(x=x, y=y, color=inks)
        )
    return alt.layer(*drawn).properties(width=frame.width, height=170)


def limit_rule(at: float) -> alt.Chart:
    """A line across the chart at a limit."""
    return (
        alt.Chart(values([{"limit": at}]))
        .mark_rule(color="var(--bad)", strokeDash=[5, 3], strokeWidth=1.5)
        .encode(y=alt.Y("limit:Q"))
    )


def limit_mark(at: float) -> alt.Chart:
    """A line through bars at a limit."""
    return (
        alt.Chart(values([{"limit": at}]))
        .mark_rule(color="var(--bad)", strokeDash=[5, 3], strokeWidth=1.5)
        .encode(x=alt.X("limit:Q"))
    )


def bars(
    rows: Sequence[Row],
    frame: Frame,
    title: str,
    kinds: Sequence[str],
    tones: Sequence[str] = COLOURS,
) -> alt.Chart:
    """A bar for each `name`, in the order of the rows, split into the `kinds`: `value` each."""
    order = list(dict.fromkeys(row["name"] for row in rows))
    place = [{**row, "place": kinds.index(row["kind"])} for row in rows]
    return (
        alt.Chart(values(place))
        .mark_bar(stroke="var(--paper)", strokeWidth=1)
        .encode(
            y=alt.Y("name:N", sort=order, axis=named_axis(frame)),
            x=alt.X("value:Q", title=title, axis=alt.Axis(tickCount=4 if frame.narrow else 8)),
            color=colour("kind", kinds, frame, tones),
            order=alt.Order("place:Q"),
        )
        .properties(width=frame.width, height=alt.Step(18))
    )


def plain_bars(rows: Sequence[Row], frame: Frame, title: str) -> Layers:
    """A bar for each `name`, with its `text` at the end: `value` each."""
    order = [row["name"] for row in rows]
    base = alt.Chart(values(rows)).encode(
        y=alt.Y("name:N", sort=order, axis=named_axis(frame)),
        x=alt.X("value:Q", title=title, axis=alt.Axis(tickCount=4 if frame.narrow else 8)),
    )
    return alt.layer(
        base.mark_bar(color=COLOURS[0]),
        base.mark_text(align="left", dx=4, color=INK).encode(text=alt.Text("text:N")),
    ).properties(width=frame.width, height=alt.Step(18))


def heat(rows: Sequence[Row], frame: Frame, shades: Sequence[str]) -> Layers:
    """A field for each `column` and `row` with its `text`; `shade` is one of the five `shades`."""
    columns = list(dict.fromkeys(row["column"] for row in rows))
    base = alt.Chart(values(rows)).encode(
        x=alt.X(
            "column:N",
            sort=columns,
            axis=alt.Axis(
                orient="top",
                title="because of",
                titleAnchor="start",
                labelAngle=-90 if frame.narrow else -35,
                labelLimit=0,
                ticks=False,
                domain=False,
                grid=False,
                labelExpr=ending(14 if frame.narrow else 28),
            ),
        ),
        y=alt.Y(
            "row:N", sort=list(dict.fromkeys(row["row"] for row in rows)), axis=named_axis(frame)
        ),
    )

    return (
        alt.layer(
            base.mark_rect(stroke="var(--paper)", strokeWidth=2).encode(
                color=colour("shade", shades, frame, HEAT)
            ),
            base.mark_text().encode(
                text=alt.Text("text:N"),
                color=alt.Color(
                    "shade:N",
                    legend=None,
                    scale=alt.Scale(domain=list(shades), range=list(ON_HEAT)),
                ),
            ),
        )
        .resolve_scale(color="independent")
        .properties(width=frame.width, height=alt.Step(18))
    )


def pauses(rows: Sequence[Row], frame: Frame) -> alt.Chart:
    """A lane for each `name` with its pauses from `at` to `until`, coloured by `kind`."""
    names = list(dict.fromkeys(row["name"] for row in rows))
    kinds = sorted({row["kind"] for row in rows})
    return (
        alt.Chart(values(rows))
        .mark_bar(minBandSize=6, stroke=None, cornerRadius=1)
        .encode(
            x=time_axis(rows, frame),
            x2=alt.X2("until:T"),
            y=alt.Y("name:N", sort=names, axis=named_axis(frame)),
            color=colour("kind", kinds, frame),
        )
        .properties(width=frame.width, height=alt.Step(16))
    )


def stacked_time(rows: Sequence[Row], frame: Frame, title: str, kinds: Sequence[str]) -> alt.Chart:
    """Bars over time from `at` to `until`, split into `kinds`: `value` each."""
    piled: dict[int, float] = {}
    placed = []
    for row in sorted(rows, key=lambda row: (row["at"], kinds.index(row["kind"]))):
        low = piled.get(row["at"], 0.0)
        piled[row["at"]] = low + row["value"]
        placed.append({**row, "low": low, "high": low + row["value"]})
    return (
        alt.Chart(values(placed))
        .mark_bar(stroke="var(--paper)", strokeWidth=0.5)
        .encode(
            x=time_axis(rows, frame),
            x2=alt.X2("until:T"),
            y2=alt.Y2("high:Q"),
            y=alt.Y("low:Q", title=title, axis=alt.Axis(tickCount=5)),
            color=colour("kind", kinds, frame),
        )
        .properties(width=frame.width, height=150)
    )


def curves(rows: Sequence[Row], frame: Frame) -> Layers:
    """Hit ratio (%) against size: a line for each `name` through `bytes` and `value`."""
    names = list(dict.fromkeys(row["name"] for row in rows))
    inks, dashes = strokes(names, frame)
    base = alt.Chart(values(rows)).encode(
        x=alt.X(
            "bytes:Q",
            title="size of each broker's cache (bytes)",
            scale=alt.Scale(type="log", nice=False),
            axis=alt.Axis(format=".2~s", tickCount=4 if frame.narrow else 8, grid=False),
        ),
        y=alt.Y(
            "value:Q",
            title="reads answered (%)",
            scale=alt.Scale(zero=False),
            axis=alt.Axis(tickCount=5),
        ),
        color=inks,
    )
    return alt.layer(
        base.mark_line(strokeWidth=2).encode(strokeDash=dashes),
        base.mark_point(filled=True, size=24),
    ).properties(width=frame.width, height=220)
