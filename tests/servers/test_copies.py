"""A warehouse that is copied while a run is at work on it, and two warehouses on one machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from app.config.settings import Settings
from app.run.service import run
from tests.support import trace_in_parts
from tests.support.servers.process import free_ports
from tests.support.traces import every_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


def mirror(source: Path, target: Path) -> None:
    """What `rsync -a --delete SOURCE/ TARGET` does; files may come and go meanwhile."""
    there = {path.relative_to(source) for path in source.rglob("*") if path.is_file()}
    for path in [path for path in target.rglob("*") if path.is_file()]:
        if path.relative_to(target) not in there:
            path.unlink()
    for name in sorted(there):
        old, new = source / name, target / name
        try:
            found = old.stat()
            kept = new.stat() if new.exists() else None
            if kept is None or (kept.st_size, kept.st_mtime_ns) != (
                found.st_size,
                found.st_mtime_ns,
            ):
                new.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(old, new)
        except FileNotFoundError:
            continue


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A trace in parts, with nothing processed yet."""
    return trace_in_parts.made(tmp_path / "first")


def copied_at_work(warehouse: Path, target: Path, settings: Settings) -> int:
    """Run while another thread copies again and again; how often it did."""
    ended, copies = threading.Event(), 0

    def copy() -> None:
        nonlocal copies
        while not ended.is_set():
            mirror(warehouse, target)
            copies += 1

    thread = threading.Thread(target=copy)
    thread.start()
    try:
        assert run(settings, available_now=True) == 0
    finally:
        ended.set()
        thread.join()
    return copies


def test_a_copy_that_is_brought_up_to_date_after_a_stop_is_continued_elsewhere(
    begun: Path, tmp_path: Path, spark: SparkSession
) -> None:
    elsewhere = tmp_path / "elsewhere"
    trace_in_parts.give(begun, 0, 1)
    warehouse = begun / trace_in_parts.WAREHOUSE
    copies = copied_at_work(
        warehouse, elsewhere / trace_in_parts.WAREHOUSE, trace_in_parts.settings_of(begun)
    )
    assert copies > 1
    mirror(warehouse, elsewhere / trace_in_parts.WAREHOUSE)

    (elsewhere / trace_in_parts.INPUT).mkdir()
    shutil.copy2(begun / trace_in_parts.CONFIG, elsewhere)
    shutil.copytree(begun / trace_in_parts.TRACE, elsewhere / trace_in_parts.TRACE)
    for folder in (begun, elsewhere):
        trace_in_parts.give(folder, 2)
        assert run(trace_in_parts.settings_of(folder), available_now=True) == 0
    expected = every_row(str(warehouse))
    assert {"events", "throttle_events", "cache_stats"} <= expected.keys()
    assert every_row(str(elsewhere / trace_in_parts.WAREHOUSE)) == expected


def tenants(folder: Path) -> Iterator[tuple[str, Path]]:
    """Two configurations, each with a warehouse and a port of its own."""
    document = yaml.safe_load((folder / trace_in_parts.CONFIG).read_text("utf-8"))
    for name, port in zip(("east", "west"), free_ports(2), strict=True):
        config = folder / f"{name}.yaml"
        config.write_text(
            yaml.safe_dump(
                {
                    **document,
                    "warehouse": str(folder / name),
                    "source": {**document["source"], "path": str(folder / trace_in_parts.INPUT)},
                    "metrics": {"listen": f"127.0.0.1:{port}"},
                }
            ),
            encoding="utf-8",
        )
        yield name, config


def test_two_runs_with_a_warehouse_each_do_not_meet(begun: Path) -> None:
    trace_in_parts.give(begun, 0, 1)
    runs = {
        name: subprocess.Popen(
            [sys.executable, "-m", "app.cli", "run", "--config", config, "--available-now"],
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, config in tenants(begun)
    }
    for name, process in runs.items():
        log = process.communicate()[1]
        assert process.returncode == 0, f"{name}: {log}"
    east, west = (every_row(str(begun / name)) for name in runs)
    assert east == west and {"events", "throttle_events"} <= east.keys()
