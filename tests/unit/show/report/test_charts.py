"""Charts of whatever names there are."""

from __future__ import annotations

from xml.etree import ElementTree

import altair as alt
import pytest

from app.config.settings import load_settings
from app.show.report.build import build
from app.show.report.charts import NARROW, WIDE, named_axis, svg, values
from app.show.report.model import Chart, Frame, Row
from app.show.report.report_reader import ReportSpan


def test_every_chart_of_a_report_is_valid_vega_lite(warehouse: str) -> None:
    """Altair checks each part of a chart here; a report leaves that out."""
    page = build(load_settings(overrides={"warehouse": warehouse}), ReportSpan())
    charts = [part for s in page.sections for part in s.parts if isinstance(part, Chart)]
    assert len(charts) >= 14
    for chart in charts:
        for frame in (WIDE, NARROW):
            assert chart.draw(chart.rows, frame).to_dict()["$schema"]


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
