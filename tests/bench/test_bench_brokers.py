"""The benchmarks that start a broker of their own (tests.servers.kafka) work, on few events."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.bench.stream import Bench
from tests.bench.test_bench_runs import LONG, NEEDS_A_BROKER, finds_its_figures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.kafka
@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.slow] if name in LONG else [])
    for name in sorted(NEEDS_A_BROKER)
])
def test_benchmark_with_a_broker(name: str, spark: SparkSession, tmp_path: Path) -> None:
    finds_its_figures(name, Bench(spark, tmp_path, small=True), tmp_path / "out")
