"""The benchmarks work: each runs once on a few thousand events, in the session of the suite."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.__main__ import BENCHES
from benchmarks.stream import Bench
from tests.support.bench_runs import LONG, NEEDS_A_BROKER, finds_its_figures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
