"""Killed between and inside commits, again and again: the rows of an uninterrupted run."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import yaml

from app.run import run
from app.settings import Settings, load_settings
from tests.traces import all_rows, demo_trace, identities

KILLS = [
    ("archive", "before", 1),
    ("rate_limits", "before", 1),
    ("rate_limits", "after", 1),  # one table of the batch is committed, the others are not
    ("archive", "after", 1),
    ("rate_limits", "inside", 4),
    ("archive", "inside", 2),
    ("rate_limits", "after", 6),
]


def written_config(folder: Path, name: str) -> Path:
    """A configuration over the shared input, with a warehouse of its own."""
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({
        "warehouse": str(folder / name), "partitions": 2, "policy_files": ["policies.yaml"],
        "source": {
            "format": "files", "path": str(folder / "events"),
            "options": {"maxFilesPerTrigger": 12},
        },
    }))
    return path


def killed(config: Path, query: str, point: str, number: int) -> int:
    """Exit code of a run that was to be killed."""
    module = "tests.crash.killed_run"
    command = [sys.executable, "-m", module, str(config), query, point, str(number)]
    return subprocess.run(command, timeout=300, check=False, capture_output=True).returncode


def test_killed_at_any_commit_a_run_goes_on_to_the_rows_of_one_that_was_not(
    tmp_path: Path, spark: object
) -> None:
    from app.generate.write import write_files, write_policies

    trace = demo_trace(20_000)
    write_files(trace, tmp_path / "events")
    write_policies(trace, tmp_path / "policies.yaml")
    config = written_config(tmp_path, "killed")

    codes = [killed(config, *kill) for kill in KILLS]
    assert codes == [-signal.SIGKILL] * len(KILLS)
    settings: Settings = load_settings(config)
    assert run(settings, available_now=True) == 0

    calm = load_settings(written_config(tmp_path, "calm"))
    assert run(calm, available_now=True) == 0
    assert identities(settings.warehouse) == identities(calm.warehouse)
    assert all_rows(settings.warehouse) == all_rows(calm.warehouse)
    assert all_rows(calm.warehouse)["throttle_events"]
