"""Beside a writer others keep its tables in order: no row is lost or written twice."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from app.archive_names import ARCHIVE
from app.config.settings import Settings
from app.errors import UserError
from app.read.relations import Warehouse
from app.run.maintenance.upkeep import upkeep
from app.tables import manifest
from app.tables.archive_files import ArchiveWriter, write_files
from app.tables.commit import Writer
from app.tables.definitions import TABLES
from app.tables.gathering import GatheringWriter
from app.tables.small_files import path_in
from tests.support.analyst import OPERATIONS, at_work
from tests.unit.run.maintenance.tables import found, plain, rows

MakeSettings = Callable[..., Settings]
NAME = "producer_id_owners"


@pytest.fixture
def settings(make_settings: MakeSettings) -> Settings:
    made = make_settings()
    manifest.claim(made.location, 2, 4)
    return made


def batch(number: int) -> range:
    return range(3 * number, 3 * number + 3)


def expected(name: str, batches: int) -> list[str]:
    return plain(rows(name, range(3 * batches)).select(TABLES[name].schema.names))


def shown(settings: Settings, name: str) -> list[str]:
    return plain(found(settings, name).select(TABLES[name].schema.names))


class Writers:
    """The three ways to a table: rows at once, rows that gather, and files of the archive."""

    def __init__(self, settings: Settings) -> None:
        location, history_ms = settings.location, settings.maintenance.history_ms
        self._plain = Writer(location, "plain", history_ms)
        self._gathers = GatheringWriter(location, "govern", history_ms, {"limiter_stats": 1})
        self._archive = ArchiveWriter(location, ARCHIVE, history_ms, {"events": 1})
        self._root = path_in(location, "events")
        self.batches = 0

    def write(self, commits: bool) -> None:
        """A batch of each; the gathered ones are committed if it is their time."""
        number = self.batches
        self._plain.append(NAME, rows(NAME, batch(number)), number)
        self._gathers.append("limiter_stats", rows("limiter_stats", batch(number)), number)
        made = [rows("events", batch(number))]
        self._archive.add("events", write_files(TABLES["events"], made, self._root, {}), number)
        if commits:
            self.commit()
        self.batches += 1

    def commit(self) -> None:
        """Commit what has gathered."""
        for each in (self._gathers, self._archive):
            each.commit_all()


TABLES_WRITTEN = (NAME, "limiter_stats", "events")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_between_two_batches_anything_may_be_done(settings: Settings, operation: str) -> None:
    writers = Writers(settings)
    for number in range(3):
        writers.write(commits=number == 1)
    for name in TABLES_WRITTEN:
        OPERATIONS[operation](DeltaTable(path_in(settings.location, name)))
    for number in range(2):
        writers.write(commits=number == 1)
    for name in TABLES_WRITTEN:
        assert shown(settings, name) == expected(name, writers.batches), name


def test_all_of_it_may_be_done_at_any_moment(settings: Settings) -> None:
    writers = Writers(settings)
    writers.write(commits=True)
    with at_work(settings.warehouse) as analyst:
        for _ in range(2 * len(OPERATIONS)):
            for number in range(3):  # beside the operation that is under way
                writers.write(commits=number == 1)
            analyst.wait_for_rounds(1)
    assert set(analyst.done) == set(OPERATIONS)
    writers.write(commits=True)
    for name in TABLES_WRITTEN:
        assert shown(settings, name) == expected(name, writers.batches), name
    kept = upkeep(Warehouse.of(settings.location), settings.maintenance).tables
    assert [each.problem for each in kept if each.problem] == []
    for name in TABLES_WRITTEN:
        assert shown(settings, name) == expected(name, writers.batches), name


def test_a_column_that_is_added_meanwhile_is_null_in_further_rows(settings: Settings) -> None:
    writers = Writers(settings)
    writers.write(commits=True)
    for name in TABLES_WRITTEN:
        path = path_in(settings.location, name)
        DeltaTable(path).alter.add_columns([Field("note", PrimitiveType("string"))])
    writers.write(commits=True)
    for name in TABLES_WRITTEN:
        assert shown(settings, name) == expected(name, 2), name
        assert found(settings, name).column("note").null_count == 6


def test_a_constraint_that_refuses_rows_is_named(settings: Settings) -> None:
    writing = Writer(settings.location, "govern", settings.maintenance.history_ms)
    writing.append(NAME, rows(NAME, range(1)), 0)
    path = path_in(settings.location, NAME)
    DeltaTable(path).alter.add_constraint({"few": '"row_no" < 10'})
    with pytest.raises(UserError) as refused:
        writing.append(NAME, rows(NAME, range(30, 33)), 1)
    assert str(refused.value).splitlines() == [
        f"warehouse: a constraint on the table {path} refuses rows of batch 1",
        "drop it (ALTER TABLE … DROP CONSTRAINT) and start again: the batch is repeated",
    ]
    DeltaTable(path).alter.drop_constraint("few")
    writing.append(NAME, rows(NAME, range(30, 33)), 1)
    assert found(settings, NAME).num_rows == 4


def test_files_of_the_archive_that_are_removed_while_they_wait_are_named(
    settings: Settings,
) -> None:
    """What a vacuum of all files without any retention may do: the next start names what is gone."""
    writers, events = Writers(settings), Path(settings.warehouse, "events")
    writers.write(commits=True)
    committed = {*events.glob("event_date=*/*.parquet")}
    writers.write(commits=False)
    waiting = {*events.glob("event_date=*/*.parquet")} - committed
    assert waiting
    for path in waiting:  # clocks of files are coarse
        os.utime(path, (1, 1))
    DeltaTable(path_in(settings.location, "events")).vacuum(
        retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True
    )
    assert {*events.glob("event_date=*/*.parquet")} == committed
    with pytest.raises(UserError, match="is gone or changed, with rows of events that no commit"):
        writers.commit()
    assert shown(settings, "events") == expected("events", 1)
