"""One trace and its tables after a run that nobody disturbs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from app.config.settings import load_settings
from app.run.service import run
from benchmarks.generator.write import write_files, write_policies
from tests.crash.tables import ALONE, Tables
from tests.support.servers.fixtures import kafka, pytest_runtest_teardown
from tests.support.traces import demo_trace

__all__ = ["kafka", "pytest_runtest_teardown"]

EVENTS = 20_000


@pytest.fixture(scope="session")
def crash_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the events of a trace, its policies and configurations."""
    folder = tmp_path_factory.mktemp("crash")
    trace = demo_trace(EVENTS)
    write_files(trace, folder / "events")
    write_policies(trace, folder / "policies.yaml")
    return folder


@pytest.fixture(scope="session")
def make_config(crash_folder: Path) -> Callable[[str], Path]:
    """A configuration over the trace, with a warehouse of its own."""

    def make(name: str) -> Path:
        path = crash_folder / f"{name}.yaml"
        path.write_text(
            yaml.safe_dump(
                {
                    "warehouse": str(crash_folder / name),
                    "partitions": 2,
                    "policy_files": ["policies.yaml"],
                    "source": {
                        "format": "files",
                        "path": str(crash_folder / "events"),
                        "options": {"maxFilesPerTrigger": 8},
                    },
                }
            )
        )
        return path

    return make


@pytest.fixture(scope="session")
def calm(make_config: Callable[[str], Path], spark: object) -> Tables:
    """The tables of an uninterrupted run."""
    settings = load_settings(make_config("calm"), ALONE)
    assert run(settings, available_now=True) == 0
    tables = Tables.of(settings.warehouse)
    assert {
        "events",
        "throttle_events",
        "chunk_events",
        "producer_id_stats",
        "backlog_checks",
        "cache_stats",
    } <= set(tables.rows)
    return tables
