"""The benchmarks work: the small run of each, by the command that a person types."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import ALONE, BENCHES
from tests.conftest import ROOT

TOO_LONG = {"suite", "replay_large", "replay_cluster"}
"""Their small run is that of another, or needs the machine alone."""
OFTEN = {"generator", "core"}
"""Run before each merge: what all have in common, a trace, a core, floors and a result file."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in OFTEN else [pytest.mark.slow])
        for name in sorted({*BENCHES, *ALONE} - TOO_LONG)
    ],
)
def test_benchmark_finds_its_figures(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "--small", "--out", str(tmp_path), name]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    (written,) = tmp_path.glob("*.json")
    result = json.loads(written.read_text())
    assert result["small"] and result["machine"].keys() >= {"commit", "date"}
    values = {figure["name"]: figure["value"] for figure in result["figures"]}
    assert len(values) == len(result["figures"])
    assert all(0 <= value < math.inf for value in values.values())
    assert any(value > 0 for value in values.values())
    for ratio in result["ratios"]:
        assert {ratio["figure"], ratio["floor"]} <= values.keys()
        assert 0 <= ratio["value"] < math.inf
