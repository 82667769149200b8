"""Rewrites files of a table as one file, with rows in the order of the table, in bounded memory.

DuckDB sorts and spills to disk; rows pass in batches. The new file becomes part of the table when
`app.run.maintenance.exchange` commits it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from app.read.databases import literal, sealed
from app.read.duckdb_functions import add_functions, calls_functions
from app.read.relations import ANY_ORDER
from app.read.table_relation import GLOB
from app.run.maintenance.exchange import exchange
from app.run.maintenance.opened import Opened
from app.tables.data_files import DataFile

ROWS_AT_ONCE = 131_072
BYTES_AT_ONCE = 32 << 20
LONGEST_STAT = 200
"""Longest text (characters) in the statistics of the log; for longer ones readers open the file."""


class Rewriter:
    """Rewrites files of one table."""

    def __init__(self, opened: Opened, memory_bytes: int) -> None:
        self._opened = opened
        self._schema = pa.schema(opened.delta.schema().to_arrow())
        self._limits = {"memory_limit": f"{memory_bytes // 1_000_000}MB", "threads": "1"}

    def count(self, files: Sequence[DataFile], where: str, params: Mapping[str, Any]) -> int:
        """Number of rows of the files that fulfil a condition."""
        with self._connect(where) as connection:
            return _count(connection, self._source(connection, files), where, params)

    def count_changed(self, files: Sequence[DataFile], values: Mapping[str, str]) -> int:
        """Number of rows of the files whose value differs from the SQL of a column."""
        with self._connect() as connection:
            source = self._source(connection, files)
            there = _columns(connection, source)
            changed = [f'({v}) IS DISTINCT FROM "{c}"' for c, v in values.items() if c in there]
            return _count(connection, source, " OR ".join(changed) or "false", {})

    def replace(
        self,
        files: Sequence[DataFile],
        where: str = "true",
        params: Mapping[str, Any] | None = None,
        *,
        data_change: bool,
        values: Mapping[str, str] | None = None,
    ) -> bool:
        """Replace files by one with the rows that fulfil a condition, or by none if there are no
        such rows. `values` has, by column, SQL that replaces the stored value. Returns False, with
        the table unchanged, for the reasons of `exchange`.
        """
        made = self.write(files, where, params, data_change, values)
        if exchange(self._opened, files, [made] if made else [], data_change):
            return True
        if made:
            self._opened.files.delete_file(made.path)
        return False

    def write(
        self,
        files: Sequence[DataFile],
        where: str = "true",
        params: Mapping[str, Any] | None = None,
        data_change: bool = False,
        values: Mapping[str, str] | None = None,
    ) -> AddAction | None:
        """Write that file, which is not yet part of the table; returns None if there are no such
        rows.
        """
        with self._connect(where) as connection:
            source = self._source(connection, files)
            there = _columns(connection, source)
            # A column that no file has is left out: files of one age keep having the same ones.
            schema = pa.schema([field for field in self._schema if field.name in there])
            new = {name: f'"{name}"' for name in schema.names} | dict(values or {})
            columns = ", ".join(f'{new[name]} AS "{name}"' for name in schema.names)
            order = [f'"{c}" NULLS FIRST' for c in self._opened.table.sort_by if c in there]
            by = f" ORDER BY {', '.join(order)}" if order else ""
            found = connection.sql(
                f"SELECT {columns} FROM {source} WHERE {where}{by}", params=dict(params or {})
            ).to_arrow_reader(_rows_at_once(files))
            return self._write(files, schema, found, data_change)

    def _write(
        self,
        files: Sequence[DataFile],
        schema: pa.Schema,
        batches: pa.RecordBatchReader,
        data_change: bool,
    ) -> AddAction | None:
        folder = files[0].plain_path.rpartition("/")[0]
        path = f"{folder}/" * bool(folder) + f"part-{uuid.uuid4()}.parquet"
        system, rows = self._opened.files, 0
        try:
            with pq.ParquetWriter(
                path,
                schema,
                filesystem=system,
                compression="zstd",
                compression_level=1,
            ) as writer:
                for batch in batches:
                    rows += batch.num_rows
                    writer.write_table(pa.Table.from_batches([batch]).cast(schema))
        except BaseException:
            system.delete_file(path)
            raise
        if not rows:
            system.delete_file(path)
            return None
        return AddAction(
            path,
            int(system.get_file_info(path).size),
            dict(files[0].partition),
            # The order of files by this time is that of their rows, also after a merge.
            max(file.written_ms for file in files),
            data_change,
            _statistics(pq.read_metadata(path, filesystem=system)),
        )

    def _connect(self, where: str = "") -> duckdb.DuckDBPyConnection:
        """A connection with the functions that a condition calls."""
        connection = sealed(
            self._opened.warehouse.folder,
            {**self._limits, **ANY_ORDER},
            functions=calls_functions(where),
        )
        add_functions(connection, where)
        return connection

    def _source(self, connection: duckdb.DuckDBPyConnection, files: Sequence[DataFile]) -> str:
        """The view that DuckDB reads: the stored rows of the files, and when the files were
        written.
        """
        paths = [file.plain_path for file in files]
        folder = self._opened.warehouse.folder
        root = None if folder is None else str((folder / self._opened.name).resolve())
        if root is None or GLOB.search(root + "".join(paths)) or "://" in root:
            import pyarrow.dataset as ds

            system = self._opened.files
            schemas = [ds.dataset(p, filesystem=system, format="parquet").schema for p in paths]
            stored = {name for schema in schemas for name in schema.names}
            schema = pa.schema([field for field in self._schema if field.name in stored])
            connection.register(
                "_files", ds.dataset(paths, schema, format="parquet", filesystem=system)
            )
            connection.execute("CREATE TEMP VIEW files AS SELECT * FROM _files")
        else:
            names = ", ".join(literal(f"{root}/{path}") for path in paths)
            connection.execute(
                f"CREATE TEMP VIEW files AS SELECT * FROM read_parquet([{names}],"
                " union_by_name = true, hive_partitioning = false)"
            )
        return "files"


def _count(
    connection: duckdb.DuckDBPyConnection, source: str, where: str, params: Mapping[str, Any]
) -> int:
    (found,) = connection.execute(
        f"SELECT count(*) FILTER (WHERE {where}) FROM {source}", dict(params)
    ).fetchone() or (0,)
    return int(found)


def _columns(connection: duckdb.DuckDBPyConnection, source: str) -> set[str]:
    return {row[0] for row in connection.execute(f"DESCRIBE {source}").fetchall()}


def _rows_at_once(files: Sequence[DataFile]) -> int:
    """Rows of one batch; fewer if they are large."""
    rows = sum(file.rows or 0 for file in files) or ROWS_AT_ONCE
    per_row = max(sum(file.bytes for file in files) // rows, 1)
    return max(min(ROWS_AT_ONCE, BYTES_AT_ONCE // per_row), 1)


def _statistics(metadata: Any) -> str:
    """Delta statistics from the footer of a Parquet file, without columns of lists and maps."""
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for at in range(metadata.num_columns):
        if metadata.schema.column(at).max_repetition_level:
            continue
        name = metadata.schema.column(at).path
        groups = [
            metadata.row_group(g).column(at).statistics for g in range(metadata.num_row_groups)
        ]
        if any(s is None or not s.has_null_count for s in groups):
            continue
        nulls[name] = sum(s.null_count for s in groups)
        valued = [s for s in groups if s.num_values]
        if not valued or not all(s.has_min_max for s in valued):
            continue
        ends = min(s.min for s in valued), max(s.max for s in valued)
        if all(isinstance(v, int) or (isinstance(v, str) and len(v) <= LONGEST_STAT) for v in ends):
            least[name], most[name] = ends
    return json.dumps(
        {"numRecords": metadata.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}
    )
