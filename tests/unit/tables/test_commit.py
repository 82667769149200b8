"""Appends of one query, without Spark: once per batch, also into tables of an earlier version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from app.config.settings import Settings
from app.tables import checkpoints
from app.tables.commit import Writer
from app.tables.definitions import TABLES
from app.tables.shape import shaped
from app.tables.small_files import path_in

MakeSettings = Callable[..., Settings]
NAME = "limiter_stats"


def writer(settings: Settings) -> Writer:
    return Writer(settings.location, "govern", settings.maintenance.history_ms)


def rows(**columns: Any) -> pa.Table:
    return shaped(pa.table({name: [value] for name, value in columns.items()}), TABLES[NAME], {})


def test_a_table_of_an_earlier_version_gets_the_columns_that_it_lacks(
    make_settings: MakeSettings,
) -> None:
    settings = make_settings()
    path = path_in(settings.location, NAME)
    names = TABLES[NAME].schema.names
    earlier = [name for name in names if name not in (names[3], names[-1])]
    old = rows(cluster="a").select(earlier)
    write_deltalake(path, old)

    writer(settings).append(NAME, rows(cluster="b"), 0)

    found = DeltaTable(path).to_pyarrow_table()
    assert sorted(found["cluster"].to_pylist()) == ["a", "b"]
    assert set(found.column_names) == set(names)
    assert DeltaTable(path).protocol().min_writer_version == 2


def test_a_batch_is_written_once_and_recorded(make_settings: MakeSettings) -> None:
    settings = make_settings()
    for batch, cluster in ((0, "a"), (1, "b"), (1, "b"), (4, "c")):
        again = writer(settings)
        again.append(NAME, rows(cluster=cluster), batch)
        again.settle()

    table = DeltaTable(path_in(settings.location, NAME))
    assert sorted(table.to_pyarrow_table()["cluster"].to_pylist()) == ["a", "b", "c"]
    commit = checkpoints.committed(settings.location, "govern").tables[NAME]
    assert (commit.batch, commit.before) == (4, 1)
    assert table.transaction_version(commit.application) == 4
