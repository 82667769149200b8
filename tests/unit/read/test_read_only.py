"""SQL from outside reads the tables and nothing else: every way to a file that DuckDB has."""

from __future__ import annotations

import contextlib
import io
import os
import sqlite3
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.config.settings import load_settings
from app.errors import UserError
from app.read.query import query
from app.read.read_only import CATALOG_VIEWS, TABLE_FUNCTIONS, only_select
from app.read.relations import Warehouse, connect
from app.read.sql_functions import FUNCTIONS
from tests.support.throttle_rows import event, write

SECRET = "0f3c-not-for-you"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A warehouse, and beside it the secret in every format that DuckDB reads."""
    tmp_path = tmp_path_factory.mktemp("place")
    write(str(tmp_path / "warehouse"), "throttle_events", [event(0, "mark")])
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "secret.csv").write_text(f"a\n{SECRET}\n")
    (tmp_path / "secret.json").write_text(f'{{"a": "{SECRET}"}}\n')
    pq.write_table(pa.table({"a": [SECRET]}), tmp_path / "secret.parquet")
    with duckdb.connect(str(tmp_path / "secret.db")) as database:
        database.execute("CREATE TABLE t AS SELECT ? AS a", [SECRET])
    with contextlib.closing(sqlite3.connect(tmp_path / "secret.sqlite")) as lite:
        lite.execute("CREATE TABLE t (a)")
        lite.execute("INSERT INTO t VALUES (?)", [SECRET])
        lite.commit()
    (tmp_path / "warehouse" / "link.txt").symlink_to(tmp_path / "secret.txt")
    (tmp_path / "warehouse" / "links").symlink_to(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEIR_TEST_SECRET", SECRET)
        patch.chdir(tmp_path)
        yield tmp_path


@pytest.fixture(scope="module")
def settings(place):
    return load_settings(None, {"warehouse": str(place / "warehouse")})


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Everything below a folder, with size and time of change."""
    return {
        str(p.relative_to(folder)): (p.lstat().st_size, p.lstat().st_mtime_ns)
        for p in sorted(folder.rglob("*"))
        if not p.is_dir()
    }


WAYS = (
    "{p}/secret",
    "{p}/warehouse/../secret",
    "{p}/warehouse/./../secret",
    "secret",
    "./warehouse/../secret",
    "file:{p}/secret",
    "file://{p}/secret",
    "{p}/warehouse/links/secret",
    "{p}/s?cret",
)
READERS = {
    "read_text": ".txt",
    "read_blob": ".txt",
    "read_csv": ".csv",
    "read_csv_auto": ".csv",
    "sniff_csv": ".csv",
    "read_json": ".json",
    "read_json_auto": ".json",
    "read_json_objects": ".json",
    "read_json_objects_auto": ".json",
    "read_ndjson": ".json",
    "read_ndjson_auto": ".json",
    "read_ndjson_objects": ".json",
    "read_parquet": ".parquet",
    "parquet_scan": ".parquet",
    "parquet_metadata": ".parquet",
    "parquet_schema": ".parquet",
    "parquet_file_metadata": ".parquet",
    "parquet_kv_metadata": ".parquet",
    "parquet_full_metadata": ".parquet",
    "read_single_csv_file": ".csv",
    "read_single_json_file": ".json",
    "read_single_parquet_file": ".parquet",
    "read_duckdb": ".db",
    "glob": ".txt",
    "query_table": ".csv",
    "sqlite_scan": ".sqlite",
}


def test_what_does_not_only_read_is_refused_each_time():
    for where in ("first", "second", "first"):
        only_select("SELECT 41 + 1", where)
        with pytest.raises(UserError, match=f"{where}: the table function read_csv"):
            only_select("SELECT * FROM read_csv('x')", where)


@pytest.mark.parametrize("reader", READERS)
def test_no_function_reads_a_file_outside_neither_with_the_lists_nor_without(
    place, settings, reader
):
    connection = connect(Warehouse.of(settings.location), "throttle_events")
    for way in WAYS:
        path = way.replace("{p}", str(place)) + READERS[reader]
        sql = f"SELECT * FROM {reader}('{path}')"
        with pytest.raises(UserError, match=f"{reader} is not allowed"):
            only_select(sql, "query")
        # Were the name missing in the lists, DuckDB itself would still refuse.
        with pytest.raises(duckdb.Error):
            connection.execute(sql).fetchall()


@pytest.mark.parametrize(
    "name",
    [
        "secret.csv",
        "secret.json",
        "secret.parquet",
        "secret.db",
        "warehouse/../secret.csv",
        "warehouse/links/secret.csv",
        "~/.bashrc",
        "/proc/self/environ",
        "/dev/stdin",
        "http://127.0.0.1:9/secret.csv",
        "s3://bucket/secret.parquet",
        "hf://x/y.csv",
    ],
)
@pytest.mark.parametrize(
    "statement",
    [
        "FROM '{}'",
        "SUMMARIZE '{}'",
        "DESCRIBE '{}'",
        "SELECT (SELECT any_value(a) FROM '{}')",
        "WITH x AS (FROM '{}') FROM x",
        'SELECT * FROM "{}"',
    ],
)
def test_no_path_stands_for_a_table(settings, statement, name):
    with pytest.raises(UserError):
        query(settings, statement.format(name))


def test_every_view_of_this_duckdb_is_refused_or_known_to_be_harmless(settings):
    connection = connect(Warehouse.of(settings.location), "throttle_events")
    views = connection.execute(
        "SELECT schema_name, view_name FROM duckdb_views() WHERE internal"
    ).fetchall()
    assert {"pg_settings", "duckdb_views"} <= {name for _, name in views}
    for schema, name in views:
        for table in (name, f"{schema}.{name}", f"system.{schema}.{name}", f'"{name.upper()}"'):
            if name in CATALOG_VIEWS and schema != "pg_catalog":
                only_select(f"FROM {table}", "query")
            else:
                with pytest.raises(UserError, match="there is no table"):
                    only_select(f"FROM {table}", "query")


def test_every_table_function_of_this_duckdb_is_refused_or_known_to_be_harmless(place, settings):
    connection = connect(Warehouse.of(settings.location), "throttle_events")
    functions = {
        name
        for (name,) in connection.execute(
            "SELECT function_name FROM duckdb_functions()"
            " WHERE function_type IN ('table', 'table_macro')"
        ).fetchall()
    }
    assert functions - TABLE_FUNCTIONS, "the list of functions came out empty"
    assert TABLE_FUNCTIONS - functions <= {"generate_subscripts"}
    for name in sorted(functions - TABLE_FUNCTIONS):
        for arguments in ("", f"'{place}/secret.txt'", f"'read_text', '{place}/secret.txt'"):
            with pytest.raises(UserError):
                only_select(f"SELECT * FROM {name}({arguments})", "query")
    # Those that are allowed open nothing, whatever they are given.
    for name in sorted(TABLE_FUNCTIONS):
        for path in (f"{place}/secret.txt", f"{place}/secret.csv", f"{place}/secret.parquet"):
            with contextlib.suppress(duckdb.Error):
                sql = f"SELECT * FROM {name}('{path}')"
                assert SECRET not in str(connection.execute(sql).fetchall())


WRITERS = [
    # A COPY, INSERT, UPDATE or DELETE in a WITH clause counts as a SELECT.
    "WITH x AS (COPY (SELECT 1) TO '{f}') SELECT 1",
    "WITH x AS (COPY (SELECT 1) TO '{f}' (FORMAT parquet)) SELECT * FROM x",
    "WITH RECURSIVE x AS (COPY (SELECT 1) TO '{f}') SELECT 1",
    "WITH y AS (SELECT 1), x AS (COPY y TO '{f}') SELECT 1 UNION SELECT 2",
    "SELECT (WITH x AS (COPY (SELECT 1) TO '{f}') SELECT 1)",
    "FROM (WITH x AS (COPY (SELECT 1) TO '{f}') SELECT 1)",
    "WITH x AS (INSERT INTO throttle_events VALUES (1) RETURNING *) SELECT 1",
    "WITH x AS (DELETE FROM throttle_events RETURNING *) SELECT 1",
    "WITH x AS (UPDATE throttle_events SET topic = '' RETURNING *) SELECT 1",
    # Functions that run the text that they are given.
    "SELECT * FROM query('WITH x AS (COPY (SELECT 1) TO ''{f}'') SELECT * FROM x')",
    "SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))",
    "SELECT * FROM destroy_external_resource('query', 'SELECT 1')",
    "SELECT * FROM enable_logging('QueryLog', storage = 'file', storage_path = '{f}')",
    "SELECT * FROM enable_profiling(save_location = '{f}')",
    "SELECT * FROM checkpoint()",
    "SELECT * FROM force_checkpoint()",
    # Statements.
    "COPY (SELECT 1) TO '{f}'",
    "COPY throttle_events TO '{f}' (FORMAT parquet)",
    "COPY throttle_events FROM '{f}'",
    "EXPORT DATABASE '{f}'",
    "IMPORT DATABASE '{f}'",
    "ATTACH '{f}'",
    "ATTACH '{f}' AS x (TYPE sqlite)",
    "DETACH memory",
    "USE memory",
    "CREATE TABLE t AS SELECT 1",
    "CREATE VIEW v AS SELECT 1",
    "CREATE SECRET s (TYPE s3)",
    "CREATE MACRO m(x) AS TABLE SELECT * FROM read_text(x)",
    "CREATE SEQUENCE s",
    "INSERT INTO throttle_events VALUES (1)",
    "UPDATE throttle_events SET topic = ''",
    "DELETE FROM throttle_events",
    "TRUNCATE throttle_events",
    "DROP VIEW throttle_events",
    "ALTER TABLE throttle_events ADD COLUMN x INT",
    "MERGE INTO throttle_events USING x ON true",
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '{f}'",
    "FORCE INSTALL httpfs FROM '{f}'",
    "SET memory_limit = '1GB'",
    "SET enable_external_access = true",
    "RESET lock_configuration",
    "SET VARIABLE x = 1",
    "PRAGMA version",
    "PRAGMA import_database('{f}')",
    "PRAGMA enable_profiling",
    "CALL checkpoint()",
    "CALL pragma_version()",
    "CHECKPOINT",
    "VACUUM",
    "ANALYZE",
    "BEGIN",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "DEALLOCATE p",
    "EXPLAIN SELECT 1",
    "EXPLAIN ANALYZE SELECT 1",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{f}'",
    "SELECT 1; SELECT 2",
    "SELECT 1; COPY (SELECT 1) TO '{f}'",
    "",
    ";",
    "-- nothing",
]


@pytest.mark.parametrize("sql", WRITERS)
@pytest.mark.parametrize("inside", [True, False], ids=["inside", "outside"])
def test_nothing_is_written_by_statement_clause_or_function(place, settings, sql, inside):
    before = files(place)
    target = place / "warehouse" / "new.csv" if inside else place / "new.csv"
    with pytest.raises(UserError):
        query(settings, sql.replace("{f}", str(target)))
    assert files(place) == before


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT getenv('WEIR_TEST_SECRET')",
        "SELECT * FROM duckdb_secrets()",
        "SELECT * FROM which_secret('s3://x', 's3')",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM duckdb_extensions()",
        "SELECT * FROM pg_read_file('x')",
        "FROM pg_settings",
        "FROM PG_Settings",
        'FROM "pg_settings"',
        "TABLE pg_settings",
        "FROM pg_catalog.pg_settings",
        "FROM system.pg_catalog.pg_settings",
        "FROM main.duckdb_settings",
        "FROM duckdb_settings",
        "FROM duckdb_secrets",
        "FROM duckdb_databases",
        "FROM duckdb_logs",
        "FROM pragma_database_list",
        "FROM sqlite_master",
        "FROM pg_prepared_statements",
        "SHOW pg_settings",
        "DESCRIBE pg_settings",
        "SUMMARIZE pg_settings",
        "FROM (DESCRIBE duckdb_secrets)",
        "SHOW DATABASES",
        "SHOW VARIABLES",
        "FROM (SHOW VARIABLES)",
        "SELECT (SELECT count(*) FROM pg_settings)",
        "SELECT 1 WHERE EXISTS (FROM duckdb_settings)",
        "WITH s AS (FROM pg_settings) FROM s",
        "FROM (WITH pg_settings AS (SELECT 1) FROM pg_settings), pg_settings",
        "SELECT 1 UNION ALL SELECT count(*) FROM pg_settings",
        "FROM throttle_events JOIN pg_settings ON true",
        "FROM throttle_events, LATERAL (FROM pg_settings)",
        "FROM query_table('pg_settings')",
        "FROM query_table(['pg_settings'])",
        "PIVOT pg_settings ON name",
        "FROM (PIVOT pg_settings ON name IN ('threads') USING count(*))",
        "FROM (UNPIVOT pg_settings ON name)",
        "PRAGMA database_list",
        "CALL duckdb_settings()",
        "EXPLAIN FROM pg_settings",
    ],
)
def test_neither_environment_nor_secrets_nor_settings_are_shown(settings, sql):
    with pytest.raises(UserError):
        query(settings, sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT json_serialize_plan('SELECT * FROM read_text(''secret.txt'')')",
        "SELECT json_serialize_sql('SELECT 1')",
        "SELECT current_setting('s3_secret_access_key')",
        "SELECT nextval('s')",
        "SELECT write_log('x')",
        "SELECT pg_sleep(9)",
        "SELECT sleep_ms(9)",
        "SELECT getvariable('x')",
        "SELECT current_query()",
        "SELECT 1 WHERE 'x' = getenv('HOME')",
        "SELECT list_transform([1], x -> getenv('HOME'))",
        "SELECT max(getenv('HOME')) OVER ()",
        "SELECT JSON_SERIALIZE_PLAN('SELECT 1')",
        "SELECT main.getenv('HOME')",
    ],
)
def test_scalar_functions_are_on_a_list_too(settings, sql):
    with pytest.raises(UserError, match=r"is not allowed|does not exist"):
        query(settings, sql)


def test_every_function_of_this_duckdb_is_listed_or_refused(place, settings):
    connection = connect(Warehouse.of(settings.location), "throttle_events")
    functions = {
        name
        for (name,) in connection.execute(
            "SELECT function_name FROM duckdb_functions()"
            " WHERE function_type IN ('scalar', 'aggregate', 'macro')"
        ).fetchall()
    }
    windows = {
        "row_number",
        "rank",
        "dense_rank",
        "rank_dense",
        "percent_rank",
        "cume_dist",
        "ntile",
        "lag",
        "lead",
        "first_value",
        "last_value",
        "nth_value",
        "fill",
        "unnest",
    }
    assert FUNCTIONS - functions <= windows, "a listed function is gone"
    for name in sorted(functions - FUNCTIONS):
        if name.isidentifier():
            with pytest.raises(UserError):
                only_select(f"SELECT {name}('x')", "query")


def test_ordinary_expressions_are_allowed(settings):
    only_select(
        """
        SELECT topic, count(*) FILTER (WHERE reads_paused) AS n, sum(balance_msgs) + 1 - -2,
          CASE WHEN topic LIKE 'a%' OR topic NOT ILIKE '%b' THEN 1 END, coalesce(topic, ''),
          collateral_topics[1], struct_pack(a := 1).a, {'a': 1}, [1, 2][1:2], map {'a': 1}['a'],
          lag(topic) OVER (ORDER BY topic), rank() OVER (ORDER BY topic), extract(hour FROM now()),
          ts_wall_ms::VARCHAR || 'x', ts_wall_ms BETWEEN 1 AND 2, topic IN ('a', 'b'),
          topic IS NOT DISTINCT FROM 'a', NOT true, list_transform([1], lambda x: x + 1),
          [x for x in [1, 2] if x > 1], strftime(epoch_ms(ts_wall_ms), '%Y'), CAST('1' AS INT),
          topic SIMILAR TO 'a.*', current_date, interval 1 day, json_extract('{}', '$.a'),
          date_trunc('day', epoch_ms(0)), quantile_cont(ts_wall_ms, 0.5), 5 // 2, 2 ** 3, 7 % 2
        FROM throttle_events GROUP BY ALL""",
        "query",
    )


def test_variables_of_python_are_no_tables(settings):
    stolen = pa.table({"a": [SECRET]})
    with pytest.raises(UserError, match="stolen does not exist"):
        query(settings, "SELECT * FROM stolen")
    assert stolen.num_rows == 1


def test_a_large_sort_spills_to_a_folder_of_its_own_and_leaves_nothing(place, settings):
    connection = connect(Warehouse.of(settings.location), "throttle_events")
    ((spill,),) = connection.execute("SELECT current_setting('temp_directory')").fetchall()
    assert place not in Path(spill).parents and not Path(spill).exists()
    assert not (place / ".tmp").exists()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "WITH x AS (SELECT 1 AS a) SELECT * FROM x",
        "FROM throttle_events",
        "TABLE throttle_events",
        "VALUES (1), (2)",
        "DESCRIBE throttle_events",
        "SHOW TABLES",
        "SUMMARIZE throttle_events",
        "SHOW ALL TABLES",
        "SELECT 1;",
        "SELECT 'it''s; COPY' AS a",
        "WITH RECURSIVE x AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM x WHERE n < 3) FROM x",
        "SELECT * FROM range(3), generate_series(1, 2), unnest([1])",
        "SELECT unnest(collateral_topics) FROM throttle_events",
        "SELECT (SELECT count(*) FROM throttle_events) AS n WHERE EXISTS (SELECT 1)",
        "PIVOT throttle_events ON action IN ('mark') USING count(*) GROUP BY topic",
        "SELECT * FROM json_each('[1, 2]')",
        "SELECT view_name FROM duckdb_views()",
        "SELECT table_name FROM information_schema.tables",
        "SELECT '$1' AS x",
        "SELECT count(*) OVER w FROM throttle_events WINDOW w AS (PARTITION BY topic)",
    ],
)
def test_what_reads_is_answered(settings, sql):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert query(settings, sql, "json") == 0
    assert out.getvalue()


def test_a_connection_cannot_unlock_itself(settings):
    connection = connect(Warehouse.of(settings.location), "throttle_events")
    for sql in (
        "SET enable_external_access = true",
        "SET allowed_directories = ['/']",
        "SET lock_configuration = false",
        "SET autoload_known_extensions = true",
        "SET temp_directory = '/'",
        "INSTALL httpfs",
        "LOAD httpfs",
    ):
        with pytest.raises(duckdb.Error):
            connection.execute(sql)
    assert os.environ["WEIR_TEST_SECRET"] == SECRET


@pytest.fixture(scope="module")
def inside(place):
    """Files below the warehouse that are no table."""
    kept = place / "warehouse" / "_weir"
    kept.mkdir(exist_ok=True)
    (kept / "kept.json").write_text(f'{{"a": "{SECRET}"}}\n')
    (kept / "kept.csv").write_text(f"a\n{SECRET}\n")
    pq.write_table(pa.table({"a": [SECRET]}), kept / "kept.parquet")
    with duckdb.connect(str(kept / "kept.db")) as database:
        database.execute("CREATE TABLE t AS SELECT ? AS a", [SECRET])
    return kept


@pytest.mark.parametrize(
    "sql",
    [
        "FROM '{file}'",
        'FROM "{file}"',
        "SELECT * FROM '{file}' AS t",
        "DESCRIBE '{file}'",
        "SUMMARIZE '{file}'",
        "SHOW '{file}'",
        "SELECT (SELECT count(*) FROM '{file}')",
        "UNPIVOT '{file}' ON a INTO NAME n VALUE v",
        "FROM throttle_events POSITIONAL JOIN '{file}'",
        "WITH t AS (FROM '{file}') FROM t",
        "SELECT 1 WHERE EXISTS (FROM '{file}')",
        "SELECT * FROM throttle_events WHERE topic IN (SELECT a FROM '{file}')",
        "FROM throttle_events SEMI JOIN '{file}' ON true",
    ],
)
def test_a_file_below_the_warehouse_is_no_table(settings, inside, capsys, sql):
    with pytest.raises(UserError, match=r"there is no table .*kept\.json.*no files"):
        query(
            settings,
            sql.format(file=f"{inside}/kept.json"),
            "csv",
        )
    assert SECRET not in capsys.readouterr().out


@pytest.mark.parametrize("suffix", ["json", "csv", "parquet", "db"])
def test_no_file_is_a_table_whatever_its_format_and_path(settings, inside, suffix, monkeypatch):
    monkeypatch.chdir(inside)
    for name in (f"{inside}/kept.{suffix}", f"kept.{suffix}", f"{inside}/k*.{suffix}"):
        with pytest.raises(UserError, match=r"there is no table .*no files"):
            query(settings, f"FROM '{name}'", "csv")


@pytest.mark.parametrize("sql", ["FROM kept.json", "FROM kept.parquet", "FROM a.kept.csv"])
def test_a_name_of_two_parts_is_no_file_either(settings, inside, monkeypatch, sql):
    monkeypatch.chdir(inside)
    with pytest.raises(UserError, match=r"there is no table .*no files"):
        query(settings, sql, "csv")


@pytest.mark.parametrize(
    "sql",
    [
        "FROM main.throttle_events",
        "FROM temp.main.throttle_events",
        'FROM "throttle_events"',
        "FROM information_schema.tables",
        "SHOW TABLES",
        "SHOW ALL TABLES",
        "DESCRIBE throttle_events",
        "WITH t AS (SELECT 1) FROM t",
        "FROM duckdb_tables",
        "SHOW TABLES FROM main",
    ],
)
def test_tables_are_still_read_by_every_name(settings, sql):
    assert query(settings, sql, "csv") == 0
