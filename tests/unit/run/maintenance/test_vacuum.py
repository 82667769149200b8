"""Files leave storage when no version of the history names them, and no batch may still do so."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from app.archive_names import ARCHIVE
from app.config.settings import Settings
from app.run.maintenance.compaction import compact
from app.run.maintenance.rewriting import Rewriter
from app.run.maintenance.vacuum import Removed, vacuum
from app.tables import checkpoints
from app.tables.archive_files import FILES
from app.tables.data_files import data_files
from app.tables.gathering import Gathered
from tests.unit.run.maintenance.tables import LATER_MS, fill, found, opened, plain

MakeSettings = Callable[..., Settings]
NAME = "quarantine"
HOUR_S = 3600


def orphan(settings: Settings, name: str, hours: float, folder: str = NAME) -> Path:
    path = Path(settings.warehouse, folder, name)
    path.write_bytes(b"x" * 100)
    then = time.time() - hours * HOUR_S
    os.utime(path, (then, then))
    return path


def test_files_of_no_version_leave_after_a_day(make_settings: MakeSettings) -> None:
    settings = make_settings()
    fill(settings, NAME, range(2))
    young, old = (orphan(settings, f"part-{h}.parquet", h) for h in (20, 25))
    before = plain(found(settings, NAME))
    table = opened(settings, NAME)
    assert vacuum(table, settings.maintenance, dry_run=True) == Removed(1, 100)
    assert young.exists() and old.exists()
    assert vacuum(table, settings.maintenance, dry_run=False) == Removed(1, 100)
    assert (young.exists(), old.exists()) == (True, False)
    assert plain(found(settings, NAME)) == before


def test_a_partition_is_looked_through_as_well(make_settings: MakeSettings) -> None:
    settings = make_settings()
    fill(settings, "events", range(1))
    folder = next(p.name for p in Path(settings.warehouse, "events").iterdir() if "=" in p.name)
    old = orphan(settings, f"{folder}/part-x.parquet", 25, "events")
    assert vacuum(opened(settings, "events"), settings.maintenance, False) == Removed(1, 100)
    assert not old.exists()


def test_replaced_files_stay_for_the_history(make_settings: MakeSettings) -> None:
    settings = make_settings()
    fill(settings, NAME, range(9))
    reading = opened(settings, NAME).delta
    table = opened(settings, NAME)
    compact(table, settings.maintenance, LATER_MS)
    assert vacuum(table, settings.maintenance, dry_run=False) == Removed(0, 0)
    assert reading.to_pyarrow_table().num_rows == 27


def test_replaced_files_leave_after_the_history(make_settings: MakeSettings) -> None:
    settings = make_settings()
    fill(settings, NAME, range(9))
    table = opened(settings, NAME)
    files = data_files(table.delta)
    size = sum(file.bytes for file in files)
    made = Rewriter(table, 256 << 20).write(files)
    assert made is not None
    replaced_at(table, files, made, time.time() - 25 * HOUR_S)
    before = plain(found(settings, NAME))
    assert vacuum(table, settings.maintenance, dry_run=False) == Removed(9, size)
    assert plain(found(settings, NAME)) == before
    assert vacuum(table, settings.maintenance, dry_run=False) == Removed(0, 0)


def replaced_at(table, files, made, then_s):
    """Replace files by another one, as if that had been done at a time."""
    from deltalake.transaction import RemoveAction

    gone = [
        RemoveAction(
            f.path, False, deletion_timestamp=int(then_s * 1000), partition_values={}, size=f.bytes
        )
        for f in files
    ]
    table.delta.create_write_transaction([*gone, made], "append", table.delta.schema(), [])


def test_a_table_without_anything_to_remove_gets_no_commit(make_settings: MakeSettings) -> None:
    settings = make_settings()
    fill(settings, NAME, range(3))
    table = opened(settings, NAME)
    vacuum(table, settings.maintenance, dry_run=False)
    assert opened(settings, NAME).delta.version() == 3


def begun(settings: Settings, query: str, batch: int, hours: float, ended: bool) -> None:
    """A query has planned a batch so long ago."""
    folder = Path(settings.warehouse, checkpoints.FOLDER, query)
    for log in ("offsets", "commits")[: 1 + ended]:
        (folder / log).mkdir(parents=True, exist_ok=True)
        (folder / log / str(batch)).write_text("v1\n{}\n{}")
    then = time.time() - hours * HOUR_S
    os.utime(folder / "offsets" / str(batch), (then, then))


@pytest.mark.parametrize(
    ("ended", "left"),
    [(False, ["part-30.parquet", "part-40.parquet"]), (True, [])],
)
def test_a_file_that_is_younger_than_an_open_batch_stays_wherever_the_clock_is(
    make_settings: MakeSettings, ended: bool, left: list[str]
) -> None:
    settings = make_settings()
    fill(settings, NAME, range(1))
    old = [orphan(settings, f"part-{h}.parquet", h) for h in (30, 40, 50)]
    begun(settings, "govern", 7, 45, ended)
    removed = vacuum(opened(settings, NAME), settings.maintenance, dry_run=False)
    assert removed == Removed(3 - len(left), 100 * (3 - len(left)))
    assert [path.name for path in old if path.exists()] == left


def test_a_file_that_waits_for_a_commit_stays_and_what_was_written_since(
    make_settings: MakeSettings,
) -> None:
    settings = make_settings()
    fill(settings, NAME, range(1))
    waits, merged, gone = (orphan(settings, f"part-{h}.parquet", h) for h in (50, 30, 49))
    files = pa.Table.from_pylist(
        [{"path": waits.name, "day": None, "bytes": 100, "stats": "{}"}], FILES
    )
    gathered = Gathered(settings.location, ARCHIVE)
    gathered.put(NAME, files, 3)
    then = time.time() - 40 * HOUR_S
    os.utime(gathered.path(NAME, 3), (then, then))
    table = opened(settings, NAME)
    assert vacuum(table, settings.maintenance, dry_run=False) == Removed(1, 100)
    assert (waits.exists(), merged.exists(), gone.exists()) == (True, True, False)
    Path(gathered.path(NAME, 3)).write_bytes(b"damaged")
    assert vacuum(table, settings.maintenance, dry_run=False) == Removed(0, 0)
    gathered.remove(NAME, [3])
    assert vacuum(table, settings.maintenance, dry_run=False) == Removed(2, 200)
