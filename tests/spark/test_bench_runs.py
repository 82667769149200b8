"""The benchmarks work: each runs once on a few thousand events, in the session of the suite."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.__main__ import BENCHES, bench
from benchmarks.result import Result
from benchmarks.stream import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    "shadows",
    "first_hour",
    "freshness",
}
"""Those that share the most code with another, and take longest."""
NEEDS_A_BROKER = {"freshness", "flood", "flood_shapes", "govern_all", "plugin"}
"""Those are in test_bench_brokers.py."""


@pytest.fixture(scope="module")
def small(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(spark, tmp_path_factory.mktemp("bench"), small=True)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in LONG else [])
        for name in (*BENCHES, "compile")
        if name not in NEEDS_A_BROKER
    ],
)
def test_benchmark_finds_its_figures(name: str, small: Bench, tmp_path: Path) -> None:
    finds_its_figures(name, small, tmp_path)


def finds_its_figures(name: str, small: Bench, out: Path) -> None:
    result = bench(name)(small)
    assert isinstance(result, Result)
    assert result.figures and all(figure.value >= 0 for figure in result.figures)
    assert any(figure.value > 0 for figure in result.figures)
    assert result.write(out).exists()
