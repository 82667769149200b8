"""What a start loads before it needs it costs every start."""

from __future__ import annotations

import subprocess
import sys

import pytest

from app.sources import FORMATS
from tests.conftest import ROOT

LATER = {"numba", "pandas", "pyspark", "scipy", "great_expectations"}
"""A quarter of a second each, or more."""
OF_LOGS = "kafka_logs"
"""Its lines become records of the contract before Spark sees them."""
OF_ARCHIVE = "archive"
"""It is read once, when a warehouse continues another one."""
BEFORE_SPARK = [
    "app.cli",
    "app.run.preflight",
    "app.run.maintenance.retention",
    "app.engine.throttle_publisher",
    "app.show.alerts.rule_files",
    *(module for name, module in FORMATS.items() if name not in (OF_LOGS, OF_ARCHIVE)),
]
"""What the check before Spark imports, by the configuration."""
BESIDE = [
    "app.run.side_processes",
    "app.show.alerts.evaluator",
    "app.run.maintenance.upkeep",
    "app.show.forecast.forecasting",
    "app.show.metrics.serve",
    "app.show.reconcile.reconcile_command",
]
"""What processes beside a run import."""


@pytest.mark.parametrize("modules", [BEFORE_SPARK, BESIDE], ids=["before Spark", "beside a run"])
def test_neither_the_compiler_nor_spark_is_loaded(modules: list[str]) -> None:
    script = f"import sys, {', '.join(modules)}; print(*{LATER} & sys.modules.keys())"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_compiled_functions_load_no_linear_algebra() -> None:
    script = (
        "import sys, pyarrow as pa; from udfs.hashing import hash_strings;"
        " hash_strings(pa.array(['a'])); print('scipy.linalg' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False"]
