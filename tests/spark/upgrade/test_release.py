"""The warehouse of an earlier release: opened, read and continued, and continued again after a
later release has been at work on it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from app.cli import main
from app.run.service import run
from app.tables import formats
from app.tables.definitions import TABLES
from app.tables.small_files import write_text
from state.jobs import DECLARED
from tests.spark.upgrade import release
from tests.support.traces import every_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RELEASES = sorted(release.FOLDER.glob("*.tar.xz"))
LATER = "column_of_a_later_release"


EVER_SINCE = ("coverage_counts",)
"""Tables of what was read, which later releases have added."""


def ids(archive: Path) -> str:
    return archive.name.removesuffix(".tar.xz")


def tables(folder: Path) -> dict[str, DeltaTable]:
    """The tables of a warehouse by name."""
    found = (folder / release.WAREHOUSE).glob("*/_delta_log")
    return {path.parent.name: DeltaTable(path.parent) for path in found}


def test_there_is_a_release() -> None:
    assert RELEASES


@pytest.mark.parametrize("archive", RELEASES, ids=ids)
def test_columns_of_a_release_are_kept_as_they_were(archive: Path, tmp_path: Path) -> None:
    """Columns are added, never renamed, removed or given another type."""
    found = tables(release.unpacked(archive, tmp_path))
    assert {"events", "throttle_events", "backlog_checks"} <= found.keys()
    for name, table in found.items():
        now = {f.name: f.type for f in Schema.from_arrow(TABLES[name].schema).fields}
        assert {f.name: now.get(f.name) for f in table.schema().fields} == {
            f.name: f.type for f in table.schema().fields
        }, name


@pytest.mark.parametrize("archive", RELEASES, ids=ids)
def test_a_release_is_read_before_it_is_continued(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    warehouse = str(release.unpacked(archive, tmp_path) / release.WAREHOUSE)
    for name in ("blame", "breached-quotas", "new-producer-ids", "cache-hit-ratio"):
        assert main(["query", name, "--warehouse", warehouse, "--json"]) == 0
        assert capsys.readouterr().out.strip() not in ("", "[]"), name


def leave_a_later_release_behind(folder: Path) -> None:
    """What the next release does to a warehouse if its states have the versions of this one: it
    adds columns, and its name."""
    for table in tables(folder).values():
        table.alter.add_columns([Field(LATER, PrimitiveType("long"))])
    settings = release.settings_of(folder)
    kept = formats.load(settings.location)
    assert kept is not None
    text = (folder / release.WAREHOUSE / formats.NAME).read_text("utf-8")
    write_text(settings.location, formats.NAME, text.replace(kept.weir, "99.0.0"))


@pytest.mark.parametrize("archive", RELEASES, ids=ids)
def test_a_release_is_continued_and_goes_on_after_a_step_back(
    archive: Path, tmp_path: Path, spark: SparkSession
) -> None:
    whole = release.unpacked(archive, tmp_path / "whole")
    shutil.rmtree(whole / release.WAREHOUSE)
    release.give(whole, *range(release.PARTS))
    assert run(release.settings_of(whole), available_now=True) == 0

    folder = release.unpacked(archive, tmp_path / "continued")
    lacked = TABLES.keys() - tables(folder).keys()
    release.give(folder, 1)
    assert run(release.settings_of(folder), available_now=True) == 0
    leave_a_later_release_behind(folder)
    release.give(folder, 2)
    assert run(release.settings_of(folder), available_now=True) == 0

    expected = every_row(str(whole / release.WAREHOUSE))
    found = every_row(str(folder / release.WAREHOUSE))
    assert found.keys() == expected.keys()
    for name, rows in expected.items():
        if name in lacked and name in EVER_SINCE:
            assert len(rows) > len(found[name]), name  # it begins with the upgrade
        else:
            assert found[name] == rows, name
    written = formats.load(release.settings_of(folder).location)
    assert written is not None
    ran = {name: job for name, job in DECLARED.items() if job.by_default}
    assert written.states == {name: job.state_version for name, job in ran.items()}
    assert written.weir != "99.0.0"
