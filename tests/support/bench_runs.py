"""What tests share of bench runs."""

from __future__ import annotations

import json
import math
from pathlib import Path

from benchmarks.__main__ import bench
from benchmarks.result import Result
from benchmarks.stream import Bench

LONG = {
    "demo",
    "topics",
    "transport",
    "columnar",
    "chunks",
    "producer_ids",
    "backlog_job",
    "compile",
    "commits",
    "flood",
    "flood_shapes",
    "plugin",
    "reporter",
    "shadows",
    "first_hour",
    "freshness",
    "weight",
}
"""Those that share the most code with another, and take longest."""
NEEDS_A_BROKER = {
    "freshness",
    "flood",
    "flood_shapes",
    "govern_all",
    "plugin",
    "pollers",
    "weight",
    "reporter",
}
"""Those are in test_bench_brokers.py."""


def finds_its_figures(name: str, small: Bench, out: Path) -> None:
    result = bench(name)(small)
    assert isinstance(result, Result)
    assert result.figures and all(0 <= figure.value < math.inf for figure in result.figures)
    assert any(figure.value > 0 for figure in result.figures)
    names = [figure.name for figure in result.figures]
    assert all(names.count(name) == 1 for r in result.ratios for name in (r.figure, r.floor))
    assert all(0 <= ratio.value < math.inf for ratio in result.ratios)
    assert json.loads(result.write(out).read_text())["machine"].keys() >= {"commit", "date"}
