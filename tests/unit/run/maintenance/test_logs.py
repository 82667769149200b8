"""Logs are short, and nothing that anybody needs is missing from them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from app.config.settings import Settings
from app.read.relations import Warehouse, state
from app.run import integrity
from app.run.maintenance import logs
from app.run.maintenance.compaction import compact
from app.tables import policy_log
from app.tables.log_properties import CHECKPOINT_COMMITS, log_properties
from app.tables.small_files import path_in
from app.tables.time_travel import rows_changed_in
from tests.unit.run.maintenance.tables import (
    LATER_MS,
    commits,
    fill,
    found,
    opened,
    plain,
    rows,
    writer,
)

MakeSettings = Callable[..., Settings]
NAME = "limiter_stats"
HOUR_S = 3600


def aged(settings: Settings, hours: float, upto: int = 10**9, name: str = NAME) -> None:
    """Make the log files of these versions so old."""
    then = time.time() - hours * HOUR_S
    for path in Path(settings.warehouse, name, "_delta_log").iterdir():
        if path.name[0] == "0" and int(path.name[:20]) <= upto:
            os.utime(path, (then, then))


def shortened(settings: Settings) -> None:
    """Compact, write a checkpoint and remove all of the log that is older than the history."""
    table = opened(settings, NAME)
    compact(table, settings.maintenance, LATER_MS)
    table.delta.create_checkpoint()
    aged(settings, 25)
    logs.shorten(table, settings.maintenance, logs.size(table))


def test_a_batch_is_known_after_its_commit_has_gone(make_settings: MakeSettings) -> None:
    settings = make_settings()
    first = writer(settings)
    for batch in range(9):
        first.append(NAME, rows(NAME, range(batch, batch + 1)), batch)
    first.settle()
    before = plain(found(settings, NAME))
    shortened(settings)
    assert list(commits(settings, NAME)) == [10]
    for again in (first, writer(settings)):
        for batch in (3, 8):
            again.append(NAME, rows(NAME, range(batch, batch + 1)), batch)
            again.add_files(NAME, [], batch)
    assert plain(found(settings, NAME)) == before
    assert DeltaTable(path_in(settings.location, NAME)).version() == 10
    written = {"govern": integrity.tables_of(settings, ["rate_limits"])}
    assert (
        list(integrity.problems(settings.location, settings.streamed, written)) != []
    )  # no checkpoint
    place = Path(settings.warehouse, "_weir/checkpoints/govern")
    for log in ("offsets", "commits"):
        (place / log).mkdir(parents=True)
        (place / log / "8").write_text("v1\n{}\n{}")
    (place / "metadata").write_text("{}")
    policy_log.keep(settings.location, "govern", policy_log.begun([], {}, 0, 0, None), {})
    assert list(integrity.problems(settings.location, settings.streamed, written)) == []


def test_an_open_writer_goes_on_after_its_version_has_left_the_log(
    make_settings: MakeSettings,
) -> None:
    settings = make_settings()
    idle, busy = writer(settings, "govern"), writer(settings, "archive")
    idle.append(NAME, rows(NAME, range(1)), 0)
    for batch in range(12):
        busy.append(NAME, rows(NAME, range(batch, batch + 1)), batch)
    shortened(settings)
    idle.append(NAME, rows(NAME, range(50, 51)), 1)
    idle.append(NAME, rows(NAME, range(50, 51)), 1)
    assert found(settings, NAME).num_rows == 14


def test_every_version_of_the_history_can_be_read(make_settings: MakeSettings) -> None:
    settings = make_settings()
    fill(settings, NAME, range(60))
    table = opened(settings, NAME)
    table.delta.create_checkpoint()
    fill(settings, NAME, range(60, 130))
    aged(settings, 25, upto=110)
    logs.shorten(table, settings.maintenance, logs.size(table))
    first = next(commits(settings, NAME))
    assert 50 <= first <= 110
    for version in range(110, 131):
        assert DeltaTable(table.location, version=version).version() == version


def test_a_checkpoint_is_written_when_readers_would_open_many_commits(
    make_settings: MakeSettings,
) -> None:
    settings = make_settings()
    fill(settings, NAME, range(2))
    table = opened(settings, NAME)
    table.delta.alter.set_table_properties({"delta.checkpointInterval": "100000"})
    fill(settings, NAME, range(2, CHECKPOINT_COMMITS - 2))
    before = logs.size(table)
    assert before.since_checkpoint == CHECKPOINT_COMMITS
    logs.shorten(table, settings.maintenance, before)
    assert logs.size(table).since_checkpoint == 0
    logs.shorten(table, settings.maintenance, logs.size(table))
    names = [p.name for p in Path(table.location, "_delta_log").glob("*.checkpoint.parquet")]
    assert len(names) == 1


def test_properties_follow_the_configuration(make_settings: MakeSettings) -> None:
    settings = make_settings()
    fill(settings, NAME, range(1))
    assert logs.outdated(opened(settings, NAME), settings.maintenance) == {}
    longer = make_settings(maintenance={"history_ms": "2d"}).maintenance
    assert logs.outdated(opened(settings, NAME), longer) == {
        "delta.logRetentionDuration": "interval 172800 seconds",
        "delta.deletedFileRetentionDuration": "interval 172800 seconds",
    }
    assert log_properties(3_600_000, NAME)["delta.checkpointInterval"] == str(CHECKPOINT_COMMITS)


def test_a_batch_is_written_although_properties_change(
    make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta refuses the first commit after a change of properties that its writer had not seen."""
    settings = make_settings()
    appending = writer(settings)
    appending.append(NAME, rows(NAME, range(1)), 0)
    attempts: list[int] = []

    def write(delta: DeltaTable, *args: Any, **options: Any) -> None:
        attempts.append(delta.version())
        if len(attempts) == 1:  # between the writer's look at the table and its commit
            changed = opened(settings, NAME).delta
            changed.alter.set_table_properties({"delta.checkpointInterval": "7"})
        write_deltalake(delta, *args, **options)

    monkeypatch.setattr("deltalake.write_deltalake", write)
    appending.append(NAME, rows(NAME, range(1, 2)), 1)
    assert attempts == [1, 2]
    assert opened(settings, NAME).delta.version() == 3
    assert found(settings, NAME).num_rows == 2


def test_compaction_is_no_news_about_rows(make_settings: MakeSettings) -> None:
    settings = make_settings()
    fill(settings, NAME, range(9))
    warehouse = Warehouse.of(settings.location)
    before = state(warehouse, NAME, warehouse.open(NAME))
    table = opened(settings, NAME)
    table.delta.alter.set_table_properties({"delta.checkpointInterval": "77"})
    compact(table, settings.maintenance, LATER_MS)
    after = state(warehouse, NAME, warehouse.open(NAME))
    assert (after.version, after.files, after.rows) == (11, 1, 27)
    assert (before.version, before.committed_ms) == (9, after.committed_ms)
    assert rows_changed_in(table.location, {}, 11) == (9, before.committed_ms)
    table.delta.create_checkpoint()
    aged(settings, 25)
    table.delta.cleanup_metadata()
    assert rows_changed_in(table.location, {}, 11)[0] == 11
