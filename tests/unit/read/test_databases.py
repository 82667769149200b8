"""Connections of one database are as apart as those of several."""

from __future__ import annotations

import threading
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.read.databases import fileless, literal, sealed
from udfs import register_duckdb


def folder(path: Path, value: int) -> Path:
    path.mkdir()
    pq.write_table(pa.table({"a": [value]}), path / "one.parquet")
    return path


def read(connection: duckdb.DuckDBPyConnection, place: Path) -> int:
    return connection.execute(f"FROM read_parquet({literal(f'{place}/one.parquet')})").fetchall()[
        0
    ][0]


def test_what_a_connection_makes_is_its_own(tmp_path: Path) -> None:
    first, second = sealed(tmp_path), sealed(tmp_path)
    for connection, value in ((first, 1), (second, 2)):
        connection.execute(f"CREATE TEMP VIEW one AS SELECT {value} AS a")
        connection.execute(f"CREATE TEMP TABLE two AS SELECT {value} AS a")
        connection.register("three", pa.table({"a": [value]}))
    third = sealed(tmp_path)
    for name in ("one", "two", "three"):
        found = [each.execute(f"FROM {name}").fetchall() for each in (first, second)]
        assert found == [[(1,)], [(2,)]]
        with pytest.raises(duckdb.CatalogException):
            third.execute(f"FROM {name}")
    second.close()
    assert first.execute("FROM two").fetchall() == [(1,)]


def test_a_connection_reads_its_folder_alone_however_many_there_are(tmp_path: Path) -> None:
    places = [folder(tmp_path / str(n), n) for n in range(12)]
    connections = [sealed(place) for place in places]
    for n, connection in enumerate(connections):
        assert [read(connection, places[n])] == [n]
        for other in (places[n - 1], tmp_path):
            with pytest.raises(duckdb.PermissionException):
                read(connection, other)
    for connection in (fileless(), sealed(None)):
        with pytest.raises(duckdb.PermissionException):
            read(connection, places[0])


@pytest.mark.parametrize("of", [sealed, lambda _: fileless()], ids=["sealed", "fileless"])
def test_nothing_of_python_is_a_table_and_settings_stay(tmp_path: Path, of) -> None:
    mine = pa.table({"a": [1]})
    assert mine.num_rows == 1
    with pytest.raises(duckdb.CatalogException):
        of(tmp_path).execute("FROM mine")
    with pytest.raises(duckdb.Error):
        of(tmp_path).execute("SET enable_external_access = true")


def test_a_bound_of_memory_is_that_of_its_database(tmp_path: Path) -> None:
    small, large = (sealed(tmp_path, {"memory_limit": size}) for size in ("64MiB", "128MiB"))
    sizes = [
        each.execute("SELECT current_setting('memory_limit')").fetchone() for each in (small, large)
    ]
    assert sizes == [("64.0 MiB",), ("128.0 MiB",)]


def test_functions_are_those_of_the_connection_that_asks_for_them(tmp_path: Path) -> None:
    sql = "SELECT weir_user('User:a') = 'a'"
    for _ in range(2):
        with sealed(tmp_path, functions=True) as connection:
            register_duckdb(connection)
            assert connection.execute(sql).fetchall() == [(True,)]
        with pytest.raises(duckdb.CatalogException):
            sealed(tmp_path).execute(sql)


def test_threads_have_connections_of_their_own(tmp_path: Path) -> None:
    found: dict[int, int] = {}

    def work(n: int) -> None:
        for _ in range(20):
            with sealed(tmp_path) as connection:
                connection.execute(f"CREATE TEMP TABLE numbers AS SELECT {n} AS a")
                found[n] = connection.execute("SELECT a FROM numbers").fetchall()[0][0]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: n for n in range(6)}
