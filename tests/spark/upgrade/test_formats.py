"""Formats of another release: what it continues, and what it refuses by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from app import __version__
from app.config.settings import Settings, load_settings
from app.errors import UserError
from app.run import preflight
from app.tables import formats, manifest
from app.tables.definitions import TABLES
from app.tables.small_files import write_text
from state.jobs import BY_DEFAULT, DECLARED, JOBS

MakeSettings = Callable[..., Settings]


@pytest.fixture
def settings(make_settings: MakeSettings, tmp_path: Path) -> Settings:
    (tmp_path / "in").mkdir()
    return make_settings(source={"format": "files", "path": str(tmp_path / "in")})


def change(settings: Settings, name: str, **keys: Any) -> None:
    path = Path(settings.warehouse, name)
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **keys}), encoding="utf-8")


def refused(settings: Settings) -> list[str]:
    with pytest.raises(UserError) as error:
        preflight.refuse(settings)
    return str(error.value).splitlines()


def test_versions_that_are_declared_are_those_of_the_cores() -> None:
    for name, job in DECLARED.items():
        settings = load_settings(None)
        assert job.core(settings.job_params(name)).version == job.state_version, name  # type: ignore[attr-defined]


def test_what_this_release_wrote_it_continues(settings: Settings) -> None:
    assert formats.load(settings.location) is None
    formats.keep(settings.location, JOBS)
    kept = formats.load(settings.location)
    assert kept == formats.Formats(
        formats.VERSION, __version__, {name: job.state_version for name, job in DECLARED.items()}
    )
    assert preflight.refuse(settings).jobs == list(BY_DEFAULT)


def test_a_later_state_is_refused_with_the_release_that_reads_it(settings: Settings) -> None:
    formats.keep(settings.location, JOBS)
    reads = DECLARED["chunks"].state_version
    change(settings, formats.NAME, weir="7.0.0", states={"chunks": reads + 1})
    assert refused(settings) == [
        f"{settings.warehouse}/{formats.NAME}: the state of chunks has version {reads + 1}, written by"
        f" Weir 7.0.0; this release ({__version__}) reads version {reads}",
        "start Weir 7.0.0 or later, or put back a copy of the warehouse from before it ran",
    ]


@pytest.mark.parametrize("job", JOBS)
def test_an_earlier_state_is_refused_with_the_way_on(settings: Settings, job: str) -> None:
    own = settings.model_copy(update={"queries": [[job]]})
    formats.keep(own.location, JOBS)
    reads = DECLARED[job].state_version
    change(own, formats.NAME, weir="0.0.1", states={job: reads - 1})
    assert refused(own) == [
        f"{own.warehouse}/{formats.NAME}: the state of {job} has version {reads - 1}, written by Weir"
        f" 0.0.1; this release ({__version__}) reads version {reads}",
        "continue with Weir 0.0.1, or begin another warehouse, which a run with source.format delta and"
        f" source.path {own.warehouse}/events fills from the archive of this one",
    ]


def test_the_state_of_a_job_that_does_not_run_is_no_hindrance(settings: Settings) -> None:
    formats.keep(settings.location, JOBS)
    change(settings, formats.NAME, states={"backlog": 99})
    others = [job for job in JOBS if job != "backlog"]
    formats.check(settings.location, others)
    formats.keep(settings.location, others)
    kept = formats.load(settings.location)
    assert kept is not None and kept.states["backlog"] == 99


def test_a_later_file_of_formats_is_refused(settings: Settings) -> None:
    formats.keep(settings.location, JOBS)
    change(settings, formats.NAME, version=formats.VERSION + 1, weir="7.0.0", states="unknown")
    first, second = refused(settings)
    assert f"has version {formats.VERSION + 1}, written by Weir 7.0.0" in first
    assert second.startswith("start Weir 7.0.0 or later")


def test_a_damaged_file_of_formats_is_refused_with_what_helps(settings: Settings) -> None:
    formats.keep(settings.location, JOBS)
    Path(settings.warehouse, formats.NAME).write_text("{", encoding="utf-8")
    first, second = refused(settings)
    assert first.startswith(f"warehouse: {settings.warehouse}/{formats.NAME} is damaged")
    assert second.startswith("put it back from a copy")


def test_a_later_layout_is_refused(settings: Settings) -> None:
    manifest.claim(settings.location, 2, settings.shards)
    later = manifest.LAYOUT_VERSION + 1
    change(settings, manifest.NAME, layout_version=later)
    first, second = refused(settings)
    assert f"layout version {later}" in first
    assert second.endswith("take another warehouse, or the Weir that wrote this one")


def test_an_earlier_layout_is_refused_with_the_way_on(settings: Settings) -> None:
    numbers = {"layout_version": manifest.LAYOUT_VERSION - 1, "partitions": 2, "shards": 4}
    write_text(settings.location, manifest.NAME, json.dumps(numbers))
    assert refused(settings) == [
        f"{manifest.path(settings.location)}: the warehouse has layout version"
        f" {manifest.LAYOUT_VERSION - 1}",
        f"this version of Weir reads layout version {manifest.LAYOUT_VERSION}; begin another warehouse,"
        f" which a run with source.format delta and source.path {settings.warehouse}/events fills from"
        " the archive of this one",
    ]


def test_a_column_of_another_type_is_refused_by_name(settings: Settings) -> None:
    path = f"{settings.warehouse}/throttle_events"
    write_deltalake(path, pa.table({"cluster": pa.array(["c"]), "ts_wall_ms": pa.array(["late"])}))
    first, second = refused(settings)
    assert f"the column ts_wall_ms of {path} has type" in first and "string" in first
    assert second == "start the Weir that wrote it, or take another warehouse"


def test_columns_are_added_to_a_table_and_those_of_a_later_release_stay(settings: Settings) -> None:
    path = f"{settings.warehouse}/events"
    schema = TABLES["events"].schema
    DeltaTable.create(
        path, schema.remove(schema.get_field_index("payload_crc32")), partition_by=["event_date"]
    )
    DeltaTable(path).alter.add_columns([Field("later", PrimitiveType("long"))])
    assert preflight.refuse(settings).jobs == list(BY_DEFAULT)
