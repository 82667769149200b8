"""Merged files have the rows of their sources in the order of the table, whatever others commit."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from app.config.settings import Settings
from app.read.query import query
from app.run.maintenance.compaction import LEFT_ALONE, Merged, compact, planned
from app.run.maintenance.exchange import exchange
from app.run.maintenance.rewriting import Rewriter
from app.tables.data_files import data_files
from app.tables.definitions import TABLES
from tests.unit.run.maintenance.tables import LATER_MS, fill, found, opened, plain, rows, writer

MakeSettings = Callable[..., Settings]
NAME = "limiter_stats"


@pytest.mark.parametrize("name", [name for name in TABLES if name not in LEFT_ALONE])
def test_every_table_has_the_same_rows_in_few_sorted_files(
    name: str, make_settings: MakeSettings
) -> None:
    settings = make_settings()
    fill(settings, name, range(9))
    before = found(settings, name)
    table = opened(settings, name)
    parts = 2 if TABLES[name].partition_by else 1
    files = 9 * parts
    assert planned(table, settings.maintenance, LATER_MS) == Merged(files, parts)
    assert compact(table, settings.maintenance, LATER_MS) == Merged(files, parts)

    after = found(settings, name)
    assert after.schema == before.schema
    assert plain(after) == plain(before)
    for file in data_files(opened(settings, name).delta):
        stored = pq.read_table(f"{settings.warehouse}/{name}/{file.plain_path}")
        keys = [f"{key}" for key in TABLES[name].sort_by]
        order = [
            tuple((v is not None, v) for v in row.values())
            for row in stored.select(keys).to_pylist()
        ]
        assert order == sorted(order)
        assert file.rows == stored.num_rows


def test_the_log_has_the_least_and_greatest_values(make_settings: MakeSettings) -> None:
    settings = make_settings()
    fill(settings, NAME, range(8))
    table = opened(settings, NAME)
    wanted = pa.table(table.delta.get_add_actions(flatten=True))
    compact(table, settings.maintenance, LATER_MS)
    (got,) = pa.table(table.delta.get_add_actions(flatten=True)).to_pylist()
    for column in ("ts_wall_ms", "row_no", "cluster", "ts_mono_ns"):
        ends = [v for v in wanted[f"min.{column}"].to_pylist() if v is not None]
        most = [v for v in wanted[f"max.{column}"].to_pylist() if v is not None]
        assert (got[f"min.{column}"], got[f"max.{column}"]) == (min(ends), max(most))
        assert got[f"null_count.{column}"] == sum(wanted[f"null_count.{column}"].to_pylist())


def test_rows_that_two_processes_merge_are_there_once(make_settings: MakeSettings) -> None:
    settings = make_settings()
    fill(settings, NAME, range(8))
    before = found(settings, NAME)
    first, second = opened(settings, NAME), opened(settings, NAME)
    mine, theirs = data_files(first.delta), data_files(second.delta)
    made, other = (
        Rewriter(table, 64 << 20).write(files) for table, files in ((first, mine), (second, theirs))
    )
    assert made is not None and other is not None
    assert exchange(first, mine, [made], data_change=False)
    assert not exchange(second, theirs, [other], data_change=False)
    assert plain(found(settings, NAME)) == plain(before)


def test_rows_that_are_appended_meanwhile_stay(make_settings: MakeSettings) -> None:
    settings = make_settings()
    appending = writer(settings)
    for batch in range(8):
        appending.append(NAME, rows(NAME, range(batch, batch + 1)), batch)
    table = opened(settings, NAME)
    files = data_files(table.delta)
    made = Rewriter(table, 64 << 20).write(files)
    assert made is not None
    appending.append(NAME, rows(NAME, range(8, 9)), 8)
    assert exchange(table, files, [made], data_change=False)
    appending.append(NAME, rows(NAME, range(9, 10)), 9)
    assert plain(found(settings, NAME)) == plain(rows(NAME, range(10)))
    assert len(opened(settings, NAME).delta.file_uris()) == 3


def test_files_of_an_earlier_version_can_be_read_beside_merged_ones(
    make_settings: MakeSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    """Old files lack columns; merged ones lack them too unless one of their sources had them."""
    settings = make_settings()
    path = f"{settings.warehouse}/{NAME}"
    names = [name for name in TABLES[NAME].schema.names if name != "row_no"]
    large = pa.concat_tables([rows(NAME, range(n, n + 500)) for n in range(0, 20_000, 500)])
    for part in [rows(NAME, range(n, n + 1)) for n in range(9)] + [large]:
        write_deltalake(path, part.select(names), mode="append")
    fill(settings, NAME, range(3))
    before = plain(found(settings, NAME))
    compact(opened(settings, NAME), settings.maintenance, LATER_MS)
    fill_more = writer(settings)
    for batch in range(3, 12):
        fill_more.append(NAME, rows(NAME, range(3 * batch, 3 * batch + 3)), batch)
    compact(opened(settings, NAME), settings.maintenance, LATER_MS)
    assert len(plain(found(settings, NAME))) == len(before) + 27
    assert (
        query(
            settings,
            f"SELECT count(*), count(row_no) FROM {NAME}",
            "csv",
        )
        == 0
    )
    assert capsys.readouterr().out.splitlines()[1] == f"{9 + 20_000 + 36},24"


def test_staged_payloads_stay_in_their_files(make_settings: MakeSettings) -> None:
    settings = make_settings()
    fill(settings, "chunk_payloads", range(9))
    table = opened(settings, "chunk_payloads")
    assert compact(table, settings.maintenance, LATER_MS) == Merged(0, 0)
    assert DeltaTable(table.location).version() == 9


def test_rows_are_written_in_bounded_memory(make_settings: MakeSettings) -> None:
    """Files of more than 400 MB in memory are merged with 256 MB."""
    settings = make_settings()
    name = "events"
    text = "x" * 2000
    base = rows(name, range(25_000))
    at = base.schema.get_field_index("source_partition")
    for part in range(8):
        many = base.set_column(at, "source_partition", pa.array([f"{text}{part}"] * base.num_rows))
        write_deltalake(
            f"{settings.warehouse}/{name}", many, mode="append", partition_by=["event_date"]
        )
    table = opened(settings, name)
    assert Rewriter(table, 64 << 20).count(data_files(table.delta), "true", {}) == 200_000
    own = settings.maintenance.model_copy(update={"memory_bytes": 256 << 20})
    assert compact(table, own, LATER_MS) == Merged(16, 2)
    assert opened(settings, name).delta.count() == 200_000
