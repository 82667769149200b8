"""The benchmarks with a broker work on few events and the broker of the suite."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.stream import Bench
from tests.support.bench_runs import LONG, NEEDS_A_BROKER, finds_its_figures
from tests.support.servers.fixtures import kafka
from tests.support.servers.kafka import Kafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


__all__ = ["kafka"]


@pytest.mark.kafka
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in LONG else [])
        for name in sorted(NEEDS_A_BROKER)
    ],
)
def test_benchmark_with_a_broker(
    name: str, spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    finds_its_figures(name, Bench(spark, tmp_path, small=True, shared=kafka), tmp_path / "out")
