"""One Delta table of a warehouse as a relation of DuckDB: its files, columns and conditions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import compress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import duckdb
import pyarrow as pa

from app.errors import UserError
from app.read import pruning
from app.read.databases import literal, parsed
from app.read.read_only import first_lines

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from app.read.relations import Warehouse
    from app.tables.definitions import Table

GLOB = re.compile(r"[*?]")
"""Characters that DuckDB would expand in a file name."""
FEW_FILES = 16
"""Up to this number all files are opened: that takes less time than planning which are needed."""
SMALL_ROWS, SMALL_BYTES = 10_000, 1 << 20
"""A table of at most so much is read once, into memory, for all statements of a connection."""
GONE = (
    "a file that is gone was removed by VACUUM or compaction: ask again, and with --as-of take a "
    "later time"
)

FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999 (ms since the epoch). Clocks may be outside, where no calendar applies."""
EVENT_TIMES = ("pass_ms", "window_start_ms", "at_ms", "ts_wall_ms")
"""Columns with the time of a row; the first one present is used."""


@cache
def sql_type(kind: pa.DataType) -> str:
    """The name of a column type in DuckDB."""
    if pa.types.is_map(kind):
        return f"MAP({sql_type(kind.key_type)}, {sql_type(kind.item_type)})"
    if pa.types.is_list(kind):
        return f"{sql_type(kind.value_type)}[]"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMPTZ" if kind.tz else "TIMESTAMP"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return {
        "int64": "BIGINT",
        "int32": "INTEGER",
        "int16": "SMALLINT",
        "int8": "TINYINT",
        "bool": "BOOLEAN",
        "double": "DOUBLE",
        "float": "FLOAT",
        "date32[day]": "DATE",
        "binary": "BLOB",
    }.get(str(kind), "VARCHAR")


class Relation:
    """A table for DuckDB: the files of its log, as paths below the table."""

    def __init__(self, table: Table, delta: DeltaTable | None, calendar: bool = False) -> None:
        self.table = table
        self._calendar = calendar
        self.delta = delta
        self.paths: list[str] = []
        self._whole = True
        self._conditions: list[str] = []
        self.columns = {c.name: sql_type(c.type) for c in table.columns}
        self._there = list(self.columns)
        if delta is None:
            return
        written = {f.name: sql_type(f.type) for f in pa.schema(delta.schema().to_arrow())}
        self._there = list(written)
        # Columns of a newer Weir are shown; those that an older one did not write are null.
        self.columns = {**written, **{k: v for k, v in self.columns.items() if k not in written}}
        self._adds = delta.get_add_actions()
        self.paths = [unquote(path) for path in self._column("path")]
        self._has_statistics = {"min", "max"} <= set(self._adds.schema.names)
        rows = self._column("num_records") if self._has_statistics else [None]
        self._is_small = (
            None not in rows
            and sum(rows) <= SMALL_ROWS
            and sum(self._column("size_bytes")) <= SMALL_BYTES
        )

    def prune(self, scans: Sequence[pruning.Bounds] | None) -> None:
        """Keep the files that may have rows that the scans of a statement want (None: all)."""
        if scans is None or len(self.paths) <= FEW_FILES or not self._has_statistics:
            return
        limits = zip(self._column("min"), self._column("max"), self._empty(), strict=True)
        keep = [
            pruning.overlaps(scans, least or {}, most or {}, empty) for least, most, empty in limits
        ]
        if not any(keep):
            keep[0] = True  # for the types of its columns
        self.paths = list(compress(self.paths, keep))

    def _empty(self) -> list[set[str]]:
        """By file the columns that have no value."""
        if not {"null_count", "num_records"} <= set(self._adds.schema.names):
            return [set() for _ in self.paths]
        counts = zip(self._column("null_count"), self._column("num_records"), strict=True)
        return [
            {
                name
                for name, nulls in (by_column or {}).items()
                if nulls is not None and nulls == rows
            }
            for by_column, rows in counts
        ]

    def take(self, paths: Sequence[str]) -> None:
        """Keep these files."""
        wanted = set(paths)
        keep = [path in wanted for path in self.paths]
        self._whole = all(keep)
        self.paths = list(compress(self.paths, keep))

    @property
    def clock(self) -> str | None:
        """The column that decides whether rows are recent; None if they always are."""
        if self.table.job is not None:
            return "ts_wall_ms"
        clocks = ("ingest_ms", "checked_ms", "compared_ms", "made_ms")
        return next((c for c in clocks if c in self.table.names), None)

    def newest(self) -> int | None:
        """The newest time of that column in the statistics of the files; None if not known."""
        if not self.paths or not self._has_statistics:
            return None
        found = ((most or {}).get(self.clock) for most in self._column("max"))
        return max((v for v in found if v is not None and v <= LAST_MS), default=None)

    def leave_out_before(self, start_ms: int) -> None:
        """Show only rows from `start_ms` on, and leave out files without any."""
        clock = self.clock
        self._conditions.append(f'"{clock}" >= {start_ms}')
        if self.paths and self._has_statistics:
            least = [(most or {}).get(clock) for most in self._column("max")]
            keep = [value is None or value >= start_ms for value in least]
            self.paths = list(compress(self.paths, keep))

    def leave_out_beyond(self, span: tuple[int, int] | None) -> None:
        """Show only rows with an event time within a span, and those without one."""
        column = next((c for c in EVENT_TIMES if c in self.table.names), None)
        if span is not None and column in self._there:
            self._conditions.append(
                f"({_in_calendar(column)} AND ({column} < {span[0]} OR {column} >= {span[1]}))"
                " IS NOT TRUE"
            )

    def add(self, connection: duckdb.DuckDBPyConnection, warehouse: Warehouse) -> None:
        """Register the table in a connection."""
        name = self.table.name
        source = self._source(connection, warehouse)
        if source is None:
            typed = ", ".join(f'"{column}" {kind}' for column, kind in self.columns.items())
            connection.execute(parsed(connection, f"CREATE TEMP TABLE {name} ({typed})"))
            return
        shown = ", ".join(
            self._shown(c) if c in self._there else f'CAST(NULL AS {kind}) AS "{c}"'
            for c, kind in self.columns.items()
        )
        conditions = [*self._conditions, *self._own_time()]
        if warehouse.cluster is not None and "cluster" in self._there:
            conditions.append(f'"cluster" = {literal(warehouse.cluster)}')
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        text = f"{name} AS SELECT {shown} FROM {source}{where}"
        try:
            connection.execute(f"CREATE TEMP {'TABLE' if self._is_small else 'VIEW'} {text}")
        except duckdb.IOException as error:
            raise UserError(f"{first_lines(error)}\n{GONE}") from error
        except duckdb.BinderException:
            if not self._is_small:
                raise
            self._is_small = False  # there is a column that no file has yet
            self.add(connection, warehouse)

    def _shown(self, column: str) -> str:
        """SQL of a stored column as it is shown."""
        if not self._calendar or not column.endswith("_ms") or self.columns[column] != "BIGINT":
            return f'"{column}"'
        return f'CASE WHEN {_in_calendar(column)} THEN "{column}" END AS "{column}"'

    def _own_time(self) -> list[str]:
        """The condition that rows have a time within the calendar."""
        if not self._calendar:
            return []
        # Of what is refused the senders' own time may be the reason.
        times = [self.clock] if self.table.job is None else [*EVENT_TIMES, "window_ms"]
        return [f'("{c}" IS NULL OR {_in_calendar(c)})' for c in times if c in self._there]

    def _source(self, connection: duckdb.DuckDBPyConnection, warehouse: Warehouse) -> str | None:
        """The source from which DuckDB reads the rows; None if there are none."""
        name, delta = self.table.name, self.delta
        if delta is None or not self.paths:
            return None
        if warehouse.folder is None or any(GLOB.search(p) or "://" in p for p in self.paths):
            return self._dataset(connection, warehouse)
        root = str((warehouse.folder / name).resolve())
        if GLOB.search(root) or "://" in root:
            return self._dataset(connection, warehouse)
        partitions = delta.metadata().partition_columns
        files = ", ".join(literal(f"{root}/{path}") for path in self.paths)
        rows = f"read_parquet([{files}], hive_partitioning = {'true' if partitions else 'false'}"
        if self._is_small:
            return f"{rows}, union_by_name = true)"
        # A column that came with a later version of Weir is missing in the files before it.
        stored = set(self._there) - set(partitions)
        times = zip(self._column("path"), self._column("modification_time"), strict=True)
        written = {unquote(path): ms for path, ms in times}
        ends = {end(self.paths, key=written.__getitem__) for end in (min, max)}
        found = [_stored(connection, literal(f"{root}/{path}")) for path in ends]
        rows += ")" if all(stored <= columns for columns in found) else ", union_by_name = true)"
        lacking = [c for c in self._there if c in stored and not any(c in f for f in found)]
        if not lacking:
            return rows
        # Until the first rows of the later version no file has it.
        typed = ", ".join(f'CAST(NULL AS {self.columns[c]}) AS "{c}"' for c in lacking)
        return f"(SELECT * FROM {rows} UNION ALL BY NAME SELECT {typed} WHERE false)"

    def _dataset(self, connection: duckdb.DuckDBPyConnection, warehouse: Warehouse) -> str:
        assert self.delta is not None
        name = f"_{self.table.name}"
        if self._is_small and self._whole:
            connection.register(name, warehouse.small_rows(self.table.name, self.delta))
            return name
        dataset = self.delta.to_pyarrow_dataset()
        if not self._whole:
            import pyarrow.dataset as ds

            wanted = set(self.paths)
            dataset = ds.FileSystemDataset(
                [f for f in dataset.get_fragments() if unquote(f.path) in wanted],
                dataset.schema,
                dataset.format,
                dataset.filesystem,
            )
        connection.register(name, dataset)
        return name

    def _column(self, name: str) -> list[Any]:
        return list(self._adds.column(name).to_pylist())


def _stored(connection: duckdb.DuckDBPyConnection, file: str) -> set[str]:
    """The columns of one file."""
    try:
        found = connection.execute(
            f"SELECT column_name FROM (DESCRIBE SELECT * FROM read_parquet({file},"
            " hive_partitioning = false))"
        )
    except duckdb.Error as error:
        raise UserError(f"{first_lines(error)}\n{GONE}") from error
    return {name for (name,) in found.fetchall()}


def _in_calendar(column: str) -> str:
    return f'"{column}" BETWEEN {FIRST_MS} AND {LAST_MS}'
