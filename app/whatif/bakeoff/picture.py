"""Hit ratio against cache size, a line for each policy, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import quoteattr

from app.terminal.sizes import size_text
from app.whatif.bakeoff.advice import OPTIMUM
from app.whatif.bakeoff.curves import Point

WIDTH, HEIGHT = 620, 380
COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#000000",
    "#E69F00",
    "#7F7F7F",
)
"""Okabe and Ito: distinct for colour-blind readers; the dashes repeat the distinction."""
DASHES = ([1, 0], [8, 3], [4, 2], [10, 3, 2, 3], [2, 2], [6, 4])
APART = 0.05
"""Least distance of two labels, as a part of the height."""
FONT = "Helvetica, Arial, sans-serif"


DARK = {
    "white": "#14171b",
    "#000": "#e8eaed",
    "#000000": "#e8eaed",
    "#222222": "#e8eaed",
    "#888": "#a3abb5",
    "#999999": "#8b939d",
    "#ddd": "#363d46",
    "#0072B2": "#56b4e9",
    "#D55E00": "#f0883e",
    "#009E73": "#3fc79a",
    "#CC79A7": "#e29ac8",
    "#56B4E9": "#9ad2f5",
    "#E69F00": "#e6c34a",
    "#7F7F7F": "#aab1ba",
}
"""Colours for readers whose system asks for dark mode; other programs show the drawing's own
colours.
"""


def draw(points: Sequence[Point], size: int, subtitle: str, bound: bool = False) -> str:
    """The picture as the text of an SVG; `size` gets a line of its own. `bound`: no policy can do
    better than the one with foresight."""
    import altair as alt
    import vl_convert

    labels = list(dict.fromkeys(p.curve.label for p in points))
    values = [
        {"policy": p.curve.label, "bytes": p.max_bytes, "percent": 100 * p.hit_ratio}
        for p in points
    ]
    sizes = sorted({v["bytes"] for v in values})
    low = min(v["percent"] for v in values)
    bottom = max(10 * (low // 10), 0)
    bottom = bottom - 10 if bottom >= 90 else bottom
    # room on the right for the labels, whose ends a line from the curve leads to
    right = sizes[-1] * max(sizes[-1] / sizes[0], 2.0) ** 0.06
    x = alt.X(
        "bytes:Q",
        title="size of each broker's cache",
        scale=alt.Scale(type="log", domain=[sizes[0] / 1.05, right], nice=False),
        axis=alt.Axis(values=sizes, labelExpr=_names(sizes), labelOverlap=True, grid=False),
    )
    y = alt.Y(
        "percent:Q",
        title="reads answered by the cache (%)",
        scale=alt.Scale(domain=[bottom, 100], nice=False),
    )
    colour = alt.Color(
        "policy:N",
        legend=None,
        scale=alt.Scale(
            domain=labels, range=[COLOURS[i % len(COLOURS)] for i in range(len(labels))]
        ),
    )
    dash = alt.StrokeDash(
        "policy:N",
        legend=None,
        scale=alt.Scale(domain=labels, range=[DASHES[i % len(DASHES)] for i in range(len(labels))]),
    )
    curves = alt.Chart(alt.Data(values=values)).encode(x=x, y=y, color=colour)
    ends = _ends(values, labels, bottom, sizes[-1], right, bound)
    leaders = (
        alt.Chart(alt.Data(values=[v for pair in ends for v in pair]))
        .mark_line(strokeWidth=0.8)
        .encode(x=x, y=y, color=colour)
    )
    names = (
        alt.Chart(alt.Data(values=[pair[1] for pair in ends]))
        .mark_text(align="left", dx=4, fontSize=12, color="#222222")
        .encode(x=x, y=y, text="label:N")
    )
    advised = (
        alt.Chart(alt.Data(values=[{"bytes": size}]))
        .mark_rule(color="#999999", strokeDash=[3, 3])
        .encode(x=x)
    )
    chart = (
        alt.layer(
            advised,
            leaders,
            curves.mark_line(strokeWidth=2).encode(strokeDash=dash),
            curves.mark_point(filled=True, size=28),
            names,
        )
        .properties(
            width=WIDTH,
            height=HEIGHT,
            background="white",
            title=alt.TitleParams(
                "What a cache of entries would have answered",
                subtitle=subtitle,
                anchor="start",
                fontSize=15,
                subtitleFontSize=11,
            ),
        )
        .configure(font=FONT)
        .configure_view(stroke=None)
        .configure_axis(labelFontSize=11, titleFontSize=12)
    )
    text = str(vl_convert.vegalite_to_svg(chart.to_json()))
    opening = f'<svg role="img" aria-label={quoteattr(_description(values, labels))} '
    return text.replace("<svg ", opening, 1).replace(">", f">{_dark_style()}", 1)


def _dark_style() -> str:
    """A style that replaces the drawing's colours by dark ones."""
    rules = "".join(
        f'[{where}="{light}"]{{{where}:{dark}}}'
        for light, dark in DARK.items()
        for where in ("fill", "stroke")
    )
    return f"<style>@media (prefers-color-scheme:dark){{{rules}}}</style>"


def _names(sizes: Sequence[int]) -> str:
    """An expression of Vega that formats sizes."""
    text = "''"
    for size in sizes:
        text = f"abs(datum.value / {size} - 1) < 0.001 ? '{size_text(size)}' : {text}"
    return text


def _ends(
    values: Sequence[Mapping[str, Any]],
    labels: Sequence[str],
    bottom: float,
    last: int,
    right: float,
    bound: bool,
) -> list[list[dict[str, Any]]]:
    """The last point of each curve and the position of its label, without overlaps."""
    ends = {v["policy"]: v["percent"] for v in values if v["bytes"] == last}
    apart = APART * (100 - bottom)
    places: dict[str, float] = {}
    at = 100.0 + apart
    for label in sorted(labels, key=lambda name: (-ends[name], labels.index(name))):
        at = min(ends[label], at - apart)
        places[label] = at
    lowest = min(places.values())
    lift = max(bottom - lowest, 0.0)
    return [
        [
            {"policy": label, "bytes": last, "percent": ends[label]},
            {
                "policy": label,
                "bytes": right,
                "percent": places[label] + lift,
                "label": label
                if label != OPTIMUM
                else f"{label} ({'the bound' if bound else 'foresight'})",
            },
        ]
        for label in labels
    ]


def _description(values: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> str:
    """A text alternative of the picture."""
    parts = []
    for label in labels:
        own = sorted((v for v in values if v["policy"] == label), key=lambda v: v["bytes"])
        parts.append(
            f"{label} from {own[0]['percent']:.1f} % at {size_text(own[0]['bytes'])} to "
            f"{own[-1]['percent']:.1f} % at {size_text(own[-1]['bytes'])}"
        )
    return "Hit ratio against cache size: " + "; ".join(parts)
