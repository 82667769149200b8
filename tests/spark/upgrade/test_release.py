"""The warehouse of an earlier release is read; its states are refused by name. That of this one is
continued, and goes on after a later release has been at work on it."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from app import __version__
from app.cli import main
from app.config.settings import load_settings
from app.errors import UserError
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
FROZEN = {"0.1.0.tar.xz": "8bad3cd83fb24fa562d08b066272184b71ade57351e1415dad2b232a1626755a"}
"""SHA-256 of the warehouse of each release: made once, at the release, and never again."""


def ids(archive: Path) -> str:
    return archive.name.removesuffix(".tar.xz")


def tables(folder: Path) -> dict[str, DeltaTable]:
    """The tables of a warehouse by name."""
    found = (folder / release.WAREHOUSE).glob("*/_delta_log")
    return {path.parent.name: DeltaTable(path.parent) for path in found}


def test_warehouses_of_releases_are_as_they_were_made() -> None:
    assert {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in RELEASES} == FROZEN


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
def test_states_of_a_release_are_refused_with_the_way_on(archive: Path, tmp_path: Path) -> None:
    settings = release.settings_of(release.unpacked(archive, tmp_path))
    with pytest.raises(UserError) as refused:
        run(settings, available_now=True)
    reason, remedy = str(refused.value).splitlines()
    version = DECLARED["rate_limits"].state_version
    assert reason == (
        f"warehouse: the state of rate_limits in {settings.warehouse} has version 4, written by Weir"
        f" {ids(archive)}; this release ({__version__}) reads version {version}"
    )
    assert remedy == (
        f"continue with Weir {ids(archive)}, or begin another warehouse, which a run with"
        f" source.format delta and source.path {settings.warehouse}/events fills from the archive of"
        " this one"
    )


@pytest.mark.parametrize("archive", RELEASES, ids=ids)
def test_the_archive_of_a_release_fills_another_warehouse(
    archive: Path, tmp_path: Path, spark: SparkSession
) -> None:
    folder = release.unpacked(archive, tmp_path)
    source = {"format": "delta", "path": str(folder / release.WAREHOUSE / "events")}
    document = yaml.safe_load((folder / release.CONFIG).read_text("utf-8"))
    (folder / release.CONFIG).write_text(yaml.safe_dump({**document, "source": source}))
    settings = load_settings(folder / release.CONFIG, {"warehouse": str(folder / "other")})
    assert run(settings, available_now=True) == 0
    before, after = (
        DeltaTable(folder / name / "events").to_pyarrow_table(
            columns=["source_partition", "source_offset"]
        )
        for name in (release.WAREHOUSE, "other")
    )
    order = [(name, "ascending") for name in before.column_names]
    assert after.sort_by(order).to_pylist() == before.sort_by(order).to_pylist()


def test_a_warehouse_is_continued_and_goes_on_after_a_step_back(
    tmp_path: Path, spark: SparkSession
) -> None:
    whole = release.unpacked(RELEASES[-1], tmp_path / "whole")
    shutil.rmtree(whole / release.WAREHOUSE)
    release.give(whole, *range(release.PARTS))
    assert run(release.settings_of(whole), available_now=True) == 0

    folder = release.unpacked(RELEASES[-1], tmp_path / "continued")
    shutil.rmtree(folder / release.WAREHOUSE)
    release.give(folder, 0, 1)
    assert run(release.settings_of(folder), available_now=True) == 0
    leave_a_later_release_behind(folder)
    release.give(folder, 2)
    assert run(release.settings_of(folder), available_now=True) == 0

    expected = every_row(str(whole / release.WAREHOUSE))
    assert every_row(str(folder / release.WAREHOUSE)) == expected
    written = formats.load(release.settings_of(folder).location)
    assert written is not None
    ran = {name: job for name, job in DECLARED.items() if job.by_default}
    assert written.states == {name: job.state_version for name, job in ran.items()}
    assert written.weir != "99.0.0"
