"""A run whose tables are maintained all the time has the rows of one whose tables are not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from app.config.settings import Settings
from app.demo.generator.write import write_files
from app.read.relations import Warehouse
from app.run.maintenance import merging
from app.run.maintenance.compaction import compact
from app.run.maintenance.upkeep import MaintainedTable, upkeep
from app.run.service import run
from app.tables.small_files import path_in
from tests.support.traces import all_rows, demo_trace
from tests.unit.run.maintenance.tables import LATER_MS, fill, found, opened, plain, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = 17_000


@contextmanager
def maintained(settings: Settings) -> Iterator[list[MaintainedTable]]:
    """Rounds of maintenance, one after the other, until the end of the body."""
    done: list[MaintainedTable] = []
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.05):
            if Path(settings.warehouse, "_weir").is_dir():
                done.extend(upkeep(Warehouse.of(settings.location), settings.maintenance).tables)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join()


def test_a_run_and_its_restart_have_the_same_rows_with_maintenance(
    spark: SparkSession,
    make_settings: Callable[..., Settings],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(merging, "SETTLED_MS", 0)
    monkeypatch.setattr(merging, "MOST", 2)
    trace = demo_trace(EVENTS)
    write_files(trace, tmp_path / "all")
    files = sorted((tmp_path / "all").rglob("*.jsonl*"))
    assert len(files) > 20

    def settings(name: str) -> Settings:
        return make_settings(
            source={
                "format": "files",
                "path": str(tmp_path / name / "events"),
                "options": {"maxFilesPerTrigger": "10"},
            },
            policies=trace.policies,
            warehouse=str(tmp_path / name / "warehouse"),
        )

    def arrive(name: str, some: list[Path]) -> None:
        (tmp_path / name / "events").mkdir(parents=True, exist_ok=True)
        for file in some:
            (tmp_path / name / "events" / file.name).symlink_to(file)

    half = len(files) // 2
    plain_run, kept_run = settings("plain"), settings("kept")
    for part in (files[:half], files[half:]):
        arrive("plain", part)
        assert run(plain_run, available_now=True) == 0
        arrive("kept", part)
        with maintained(kept_run) as done:
            assert run(kept_run, available_now=True) == 0
        assert [kept.problem for kept in done if kept.problem] == []
        assert any(kept.files_after < kept.files for kept in done)
    upkeep(Warehouse.of(kept_run.location, kept_run.owners), kept_run.maintenance)
    assert all_rows(kept_run.warehouse) == all_rows(plain_run.warehouse)
    few, many = (
        len(DeltaTable(path_in(s.location, "events")).file_uris()) for s in (kept_run, plain_run)
    )
    assert few < many


def test_spark_reads_a_maintained_table(
    spark: SparkSession, make_settings: Callable[..., Settings]
) -> None:
    settings = make_settings()
    name = "throttle_events"
    fill(settings, name, range(9))
    table = opened(settings, name)
    compact(table, settings.maintenance, LATER_MS)
    table.delta.create_checkpoint()
    for commit in Path(table.location, "_delta_log").glob("*.json"):
        if commit.name != f"{table.delta.version():020}.json":
            commit.unlink()
    fill(settings, name, range(9, 10))
    assert spark.read.format("delta").load(table.location).count() == 30
    assert plain(found(settings, name)) == plain(rows(name, range(30)))
