"""Formats of another release: what this one continues, and what it refuses with the way on."""

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
from app.config.settings import Settings
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


def command(settings: Settings) -> str:
    """The way on, as it is typed."""
    return (
        f"./spark-submit.sh run --config weir.yaml --warehouse {settings.warehouse}-new"
        f" --from-archive {settings.warehouse}"
    )


def refused(settings: Settings) -> list[str]:
    with pytest.raises(UserError) as error:
        preflight.refuse(settings)
    return str(error.value).splitlines()


def test_what_this_release_wrote_it_continues(settings: Settings) -> None:
    assert formats.load(settings.location) is None
    formats.keep(settings.location, JOBS)
    kept = formats.load(settings.location)
    assert kept == formats.Formats(
        __version__, {name: job.state_version for name, job in DECLARED.items()}
    )
    assert preflight.refuse(settings).jobs == list(BY_DEFAULT)


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("other", [-1, 1])
def test_another_state_is_refused_with_the_way_on(settings: Settings, job: str, other: int) -> None:
    own = settings.model_copy(update={"queries": [[job]]})
    formats.keep(own.location, JOBS)
    reads = DECLARED[job].state_version
    change(own, formats.NAME, weir="7.0.0", states={job: reads + other})
    assert refused(own) == [
        f"{own.warehouse}/{formats.NAME}: the state of {job} has version {reads + other}, written by"
        f" Weir 7.0.0; this release ({__version__}) reads version {reads}",
        "continue with Weir 7.0.0, or begin a new warehouse that continues this one: its archive,"
        " then the source from where that ends",
        command(own),
    ]


def test_the_state_of_a_job_that_does_not_run_is_no_hindrance(settings: Settings) -> None:
    formats.keep(settings.location, JOBS)
    change(settings, formats.NAME, states={"backlog": 99})
    others = [job for job in JOBS if job != "backlog"]
    formats.check(settings.location, others)
    formats.keep(settings.location, others)
    kept = formats.load(settings.location)
    assert kept is not None and kept.states["backlog"] == 99


def test_a_damaged_file_of_formats_is_refused_with_what_helps(settings: Settings) -> None:
    formats.keep(settings.location, JOBS)
    Path(settings.warehouse, formats.NAME).write_text("{", encoding="utf-8")
    first, second = refused(settings)
    assert first.startswith(f"warehouse: {settings.warehouse}/{formats.NAME} is damaged")
    assert second.startswith("put it back from a copy")


@pytest.mark.parametrize("other", [-1, 1])
def test_another_layout_is_refused_with_the_way_on(settings: Settings, other: int) -> None:
    layout = manifest.LAYOUT_VERSION + other
    numbers = {"layout_version": layout, "partitions": 2, "shards": 4}
    write_text(settings.location, manifest.NAME, json.dumps(numbers))
    assert refused(settings) == [
        f"{manifest.path(settings.location)}: the warehouse has layout version {layout}, and this Weir"
        f" reads layout version {manifest.LAYOUT_VERSION}",
        "continue with the Weir that wrote it, or begin a new warehouse that continues this one: its"
        " archive, then the source from where that ends",
        command(settings),
    ]


def test_a_column_of_another_type_is_refused_by_name(settings: Settings) -> None:
    path = f"{settings.warehouse}/throttle_events"
    write_deltalake(path, pa.table({"cluster": pa.array(["c"]), "ts_wall_ms": pa.array(["late"])}))
    first, second, third = refused(settings)
    assert f"the column ts_wall_ms of {path} has type" in first and "string" in first
    assert second.startswith("continue with the Weir that wrote it, or begin a new warehouse")
    assert third == command(settings)


def test_columns_are_added_to_a_table_and_those_of_a_later_release_stay(settings: Settings) -> None:
    path = f"{settings.warehouse}/events"
    schema = TABLES["events"].schema
    DeltaTable.create(
        path, schema.remove(schema.get_field_index("payload_crc32")), partition_by=["event_date"]
    )
    DeltaTable(path).alter.add_columns([Field("later", PrimitiveType("long"))])
    assert preflight.refuse(settings).jobs == list(BY_DEFAULT)
