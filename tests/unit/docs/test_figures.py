"""Figures that pages name are those of the result files of the benchmarks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.setup.size import COEFFICIENTS

ROOT = Path(__file__).resolve().parents[3]


def figures(name: str) -> dict[str, float]:
    """The figures and ratios of a benchmark by name."""
    found = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text("utf-8"))
    return {one["name"]: one["value"] for one in [*found["figures"], *found["ratios"]]}


def shadow() -> str:
    more = (
        figures("shadows")[
            "large batch, rate_limits, one shadow / large batch, rate_limits, no shadow"
        ]
        - 1
    )
    return f"up to {more:.0%}".replace("%", " %")


def coefficient(name: str) -> float:
    """A coefficient of the command `size`."""
    value = json.loads(COEFFICIENTS.read_text("utf-8"))["coefficients"][name]["value"]
    return float(value)


def cost() -> str:
    event_s, batch_s = coefficient("core_s_per_event"), coefficient("core_s_per_batch")
    return f"takes {event_s * 1e6:.0f} µs of a core and a micro-batch of five jobs {batch_s:.2f} s"


def topic_memory() -> str:
    return f"{coefficient('driver_bytes_per_topic') / 1000:.1f} kB per topic"


def replayed() -> str:
    found = figures("replay")
    speed = round(found["replay of five jobs"], -4)
    ratio = found["replay of five jobs / read and shuffled by Spark"]
    return (
        f"five jobs take {speed:,.0f} archived records of the demo's fleet a second, "
        f"{ratio:.2f} of the speed"
    )


def growing_log() -> str:
    found = figures("maintenance")
    before = "without maintenance, 1314 commits: "
    return (
        f"{found[before + 'commit'] * 1000:.0f} ms after 1,314, and the log of one table "
        f"{found[before + 'log']:.1f} MB"
    )


def short_log() -> str:
    found = figures("maintenance")
    costs = [found[f"with maintenance, {n} commits: commit"] for n in range(438, 2191, 438)]
    return f"{min(costs) * 1000:.0f} to {max(costs) * 1000:.0f} ms over 2,190 commits"


def paused_by_others() -> str:
    found = figures("claim")
    return (
        f"{found['none: collateral pause time']:.0f} s, "
        f"{found['none: its share of all paused time']:.0f} % of all paused time"
    )


@pytest.mark.parametrize(
    ("page", "figure"),
    [
        ("operations.md", shadow),
        ("operations.md", cost),
        ("operations.md", topic_memory),
        ("maintenance.md", growing_log),
        ("maintenance.md", short_log),
        ("demo.md", paused_by_others),
        ("replay.md", replayed),
    ],
)
def test_a_page_names_the_measured_figure(page, figure):
    text = " ".join((ROOT / "docs" / page).read_text("utf-8").split())
    assert figure() in text
