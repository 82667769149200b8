"""The Delta tables of a warehouse as relations of a read-only DuckDB connection, without Spark.

DuckDB's own Delta extension is a download of its own, so the log is read by delta-rs. Local files
go to DuckDB as the list of files that the log holds (five to fifty times quicker than an Arrow
dataset over ten million rows), those of an object store as an Arrow dataset.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from app.errors import UserError
from app.tables import TABLES, VIEWS, Table

if TYPE_CHECKING:
    from app.settings import Settings

GLOB = re.compile(r"[*?]")
"""Characters that DuckDB would expand in a file name."""


@dataclass(frozen=True)
class Warehouse:
    """A folder or object-store prefix that holds one Delta table per name."""

    uri: str
    storage_options: dict[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, settings: Settings) -> Warehouse:
        """The warehouse of a configuration."""
        return cls(settings.warehouse, settings.storage())

    @property
    def folder(self) -> Path | None:
        """The local folder; None in an object store."""
        parts = urlsplit(self.uri)
        if parts.scheme == "file":
            return Path(unquote(parts.path))
        return None if "://" in self.uri else Path(self.uri)

    def location(self, name: str) -> str:
        """Where a table is."""
        return f"{(str(self.folder) if self.folder else self.uri).rstrip('/')}/{name}"

    def open(self, name: str) -> DeltaTable | None:
        """A table as its log stands now; None while nothing has been written to it."""
        folder = self.folder
        if folder is not None and not (folder / name / "_delta_log").is_dir():
            return None
        try:
            return DeltaTable(self.location(name), storage_options=self.storage_options)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            reason = str(error).splitlines()[0][:200]
            raise UserError(f"{self.location(name)}: cannot be read\n{reason}") from error

    def require(self) -> None:
        """UserError if there is nothing that could be a warehouse."""
        folder = self.folder
        if folder is not None and not any((folder / n).is_dir() for n in (*TABLES, "_weir")):
            what = "has no Weir tables" if folder.is_dir() else "does not exist"
            raise UserError(
                f"warehouse: {self.uri} {what}\n"
                "name another with --warehouse, or fill one with ./spark-submit.sh demo or run"
            )


def connect(warehouse: Warehouse, sql: str | None = None) -> duckdb.DuckDBPyConnection:
    """A connection that knows the tables and views named in `sql` (all without it).

    A table that has no rows yet is there, and empty. The connection can read below the warehouse
    and nothing else; statements are the caller's to refuse (`only_select`).
    """
    warehouse.require()
    tables, views = _named(sql)
    connection = duckdb.connect(
        config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    )
    connection.execute("SET python_enable_replacements = false")
    if warehouse.folder is not None:
        allowed = str(warehouse.folder.resolve())
        connection.execute("SET allowed_directories = [$1]".replace("$1", _literal(allowed)))
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    for name in tables:
        _add_table(connection, warehouse, TABLES[name])
    for name in views:
        connection.execute(f"CREATE VIEW {name} AS {VIEWS[name].sql}")
    return connection


def only_select(connection: duckdb.DuckDBPyConnection, sql: str, where: str) -> None:
    """UserError unless `sql` is one statement that only reads; `where` begins its message."""
    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise UserError(f"{where}: {first_lines(error)}") from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise UserError(f"{where}: allowed is one statement that reads: SELECT, WITH, DESCRIBE")


def first_lines(error: duckdb.Error) -> str:
    """The part of a DuckDB message that helps: what is wrong, and the nearest name if any."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    near = [line for line in lines[1:] if line.startswith(("Did you mean", "Candidate"))]
    return "\n".join([lines[0] if lines else type(error).__name__, *near[:1]])


def _named(sql: str | None) -> tuple[list[str], list[str]]:
    """Tables and views that a statement may read: each log that is not opened saves time."""
    words = set(re.findall(r"\w+", sql.lower())) if sql else set()
    views = [name for name in VIEWS if name in words]
    wanted = words | {table for name in views for table in VIEWS[name].reads}
    tables = [name for name in TABLES if name in wanted]
    # No name found: a listing such as SHOW TABLES.
    return (tables, views) if tables else (list(TABLES), list(VIEWS))


def _add_table(
    connection: duckdb.DuckDBPyConnection, warehouse: Warehouse, table: Table
) -> None:
    delta = warehouse.open(table.name)
    paths = _local_files(warehouse, delta, table.name) if delta is not None else []
    if paths is None:
        connection.register(table.name, delta.to_pyarrow_dataset())  # type: ignore[union-attr]
    elif not paths:
        connection.register(table.name, table.schema.empty_table())
    else:
        columns = ", ".join(f'"{name.name}"' for name in delta.schema().fields)  # type: ignore[union-attr]
        files = ", ".join(map(_literal, paths))
        hive = "true" if table.partition_by else "false"
        connection.execute(
            f"CREATE VIEW {table.name} AS SELECT {columns}"
            f" FROM read_parquet([{files}], hive_partitioning = {hive})"
        )


def _local_files(warehouse: Warehouse, delta: DeltaTable, name: str) -> list[str] | None:
    """Full paths of a table's files; None where DuckDB could not open them by these names."""
    if warehouse.folder is None:
        return None
    root = str((warehouse.folder / name).resolve())
    adds = pa.table(delta.get_add_actions())
    paths = [f"{root}/{unquote(path)}" for path in adds.column("path").to_pylist()]
    return None if any(GLOB.search(p) or "://" in p for p in paths) else paths


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
