"""An archive of a generated fleet, for the tests of what is replayed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from app.config.settings import load_settings
from benchmarks import archives
from benchmarks.generator.scenario import load_scenario
from benchmarks.generator.trace import plan_trace

EVENTS = 20_000


@pytest.fixture(scope="package")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of a warehouse with an archive in several files, and nothing else."""
    folder = tmp_path_factory.mktemp("archived")
    trace = plan_trace(load_scenario("demo"), EVENTS, 7)
    path = folder / "weir.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "warehouse": str(folder / "warehouse"),
                "shards": 3,
                "policies": trace.policies,
            }
        )
    )
    archives.build(load_settings(path), trace, 3_000)
    return path
