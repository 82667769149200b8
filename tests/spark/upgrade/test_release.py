"""A warehouse goes on after a later release with the same versions of states has been at work on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from app.run.service import run
from app.tables import formats
from app.tables.small_files import write_text
from state.jobs import DECLARED
from tests.support import trace_in_parts as parts
from tests.support.traces import every_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATER = "column_of_a_later_release"


def leave_a_later_release_behind(folder: Path) -> None:
    """What the next release does to a warehouse if its states have the versions of this one: it
    adds columns, and its name."""
    warehouse = folder / parts.WAREHOUSE
    for log in warehouse.glob("*/_delta_log"):
        DeltaTable(log.parent).alter.add_columns([Field(LATER, PrimitiveType("long"))])
    settings = parts.settings_of(folder)
    kept = formats.load(settings.location)
    assert kept is not None
    text = (warehouse / formats.NAME).read_text("utf-8")
    write_text(settings.location, formats.NAME, text.replace(kept.weir, "99.0.0"))


def test_a_warehouse_is_continued_and_goes_on_after_a_step_back(
    tmp_path: Path, spark: SparkSession
) -> None:
    whole = parts.made(tmp_path / "whole")
    parts.give(whole, *range(parts.PARTS))
    assert run(parts.settings_of(whole), available_now=True) == 0

    folder = parts.made(tmp_path / "continued")
    parts.give(folder, 0, 1)
    assert run(parts.settings_of(folder), available_now=True) == 0
    leave_a_later_release_behind(folder)
    parts.give(folder, 2)
    assert run(parts.settings_of(folder), available_now=True) == 0

    expected = every_row(str(whole / parts.WAREHOUSE))
    assert every_row(str(folder / parts.WAREHOUSE)) == expected
    written = formats.load(parts.settings_of(folder).location)
    assert written is not None
    ran = {name: job for name, job in DECLARED.items() if job.by_default}
    assert written.states == {name: job.state_version for name, job in ran.items()}
    assert written.weir != "99.0.0"
