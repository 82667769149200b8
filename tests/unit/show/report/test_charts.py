"""Charts of whatever names there are."""

from __future__ import annotations

from xml.etree import ElementTree

import altair as alt
import pytest

from app.show.report.charts import WIDE, named_axis, svg, values
from app.show.report.model import Chart, Frame, Row


@pytest.mark.parametrize(
    "name",
    [
        "a\x00b",
        "a\x1b[31m",
        "a\ufffeb",
        "a\ud83db",
        "\u202egnp",
        "<b>&\"'",
        "\U0001f4a5",
        "x" * 3000,
    ],
    ids=ascii,
)
def test_a_chart_is_drawn_whatever_is_in_a_name(name: str) -> None:
    def draw(rows: list[Row], frame: Frame) -> alt.Chart:
        return (
            alt.Chart(values(rows))
            .mark_bar()
            .encode(x="n:Q", y=alt.Y("name:N", axis=named_axis(frame)))
        )

    drawn = svg(Chart("bars", "", [{"name": name, "n": 1}], draw), WIDE)
    assert ElementTree.fromstring(drawn).tag.endswith("svg")
