"""The Delta tables of a warehouse as relations of a read-only DuckDB connection, without Spark.

DuckDB's own Delta extension would be a further download, so delta-rs reads the log. DuckDB gets
local files as the list in the log, which is five to fifty times quicker than an Arrow dataset over
ten million rows, and files of an object store as an Arrow dataset.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from app import folders
from app.config.location import Location
from app.config.owners import Owner
from app.errors import UserError, did_you_mean, reason
from app.plain_text import is_digits
from app.read import pruning
from app.read.databases import parsed, sealed
from app.read.duckdb_functions import add_functions, calls_functions
from app.read.read_only import first_lines, only_select
from app.read.table_relation import FEW_FILES, FIRST_MS, LAST_MS, Relation
from app.tables.definitions import TABLES, VIEWS
from app.tables.log_files import require_contents
from app.tables.object_store import file_system, of_store
from app.tables.time_travel import rows_changed_in, version_at
from app.terminal.program import PROGRAM

__all__ = [
    "ANY_ORDER",
    "STATES",
    "TableState",
    "Warehouse",
    "connect",
    "connect_once",
    "first_lines",
    "only_select",
    "states",
]

READER_FEATURES = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
"""Features of the Delta protocol that leave the rows of a table as those of its files."""
STATES = "weir_tables"
"""The relation with the progress of each table."""
OWNERS = "weir_owners"
"""The relation of the configured owner rules, by their place."""
QUERIES = "weir_queries"
"""The relation with the progress of each streaming query."""
OWN_COLUMNS: Mapping[str, Mapping[str, str]] = {
    STATES: {
        "name": "VARCHAR",
        **dict.fromkeys(
            ("version", "committed_ms", "files", "rows", "bytes", "newest_ms"), "BIGINT"
        ),
    },
    OWNERS: {"place": "INTEGER", **dict.fromkeys(Owner.model_fields, "VARCHAR")},
    QUERIES: {
        "query": "VARCHAR",
        "batch": "BIGINT",
        "is_open": "BOOLEAN",
        "begun_ms": "BIGINT",
        "committed_ms": "BIGINT",
    },
}
"""SQL types of the columns of these relations, which are no tables of the warehouse."""
NEWEST = ("ts_wall_ms", "at_ms", "checked_ms", "compared_ms", "polled_ms", "known_ms")
"""Columns with the time that a table has reached; the first one present is used."""

_CLUSTERS = """
SELECT cluster FROM coverage_counts WHERE cluster IS NOT NULL
UNION SELECT cluster FROM coverage_polls WHERE cluster IS NOT NULL ORDER BY cluster
"""
ANY_ORDER = {"preserve_insertion_order": "false"}
"""Setting of DuckDB: rows come in any order unless a statement orders them, and sooner."""
NARROWER = "ask for a shorter time, or where there is more memory"


@dataclass
class Kept:
    """What stays between rounds of an object store, where each look costs requests. By table:"""

    tables: dict[str, DeltaTable] = field(default_factory=dict)
    """Open ones: a new one would read its log again."""
    rows: dict[str, tuple[int, pa.Table]] = field(default_factory=dict)
    """The rows of a small one, at a version."""
    changed: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    """A version, and when rows changed last up to it (ms since the epoch)."""


@dataclass(frozen=True)
class Warehouse(Location):
    """A location with one Delta table per name, as it is read."""

    as_of_ms: int | None = None
    """Tables are read as of this moment (ms since the epoch); None for now."""
    owners: tuple[Owner, ...] = ()
    """The configured rules of owners."""
    cluster: str | None = None
    """Tables that name clusters have the rows of this one alone; None for all."""
    kept: Kept | None = field(default=None, compare=False, repr=False)
    """Of an object store, between rounds."""

    @classmethod
    def of(cls, location: Location, owners: Sequence[Owner] = ()) -> Warehouse:
        """The warehouse at a location, with secrets from the environment."""
        return cls(location.uri, location.storage(), owners=tuple(owners))

    def at(self, as_of_ms: int | None) -> Warehouse:
        """The same warehouse as of a moment."""
        return replace(self, as_of_ms=as_of_ms, kept=None)

    def of_cluster(self, cluster: str | None) -> Warehouse:
        """The rows of one cluster; a UserError where there are rows of others only."""
        self.require_cluster(cluster)
        return replace(self, cluster=cluster)

    def require_cluster(self, cluster: str | None) -> None:
        """UserError if there are rows of other clusters only."""
        if cluster is not None:
            with connect_once(self, _CLUSTERS, {}) as connection:
                names = [name for (name,) in connection.execute(_CLUSTERS).fetchall()]
            if names and cluster not in names:
                raise UserError(
                    f"--cluster: {self.uri} has no records of {cluster}\n"
                    f"{did_you_mean(cluster, names)}"
                )

    @cached_property
    def folder(self) -> Path | None:
        """The local folder; None in an object store."""
        parts = urlsplit(self.uri)
        if parts.scheme == "file":
            return Path(unquote(parts.path))
        return None if "://" in self.uri else Path(self.uri)

    def location(self, name: str) -> str:
        """Path of a table."""
        return f"{(str(self.folder) if self.folder else self.uri).rstrip('/')}/{name}"

    def open(self, name: str) -> DeltaTable | None:
        """A table at its newest version; None if it does not exist.

        A UserError if this version of Weir cannot read the table, or a local log has lost the
        contents of a commit.
        """
        folder, location = self.folder, self.location(name)
        if folder is not None and not (folder / name / "_delta_log").is_dir():
            return None
        if folder is not None and self.as_of_ms is None:
            require_contents(location)
        try:
            kept = None if self.kept is None else self.kept.tables.pop(name, None)
            delta = kept or DeltaTable(location, storage_options=self.storage_options)
            if kept is not None:
                kept.update_incremental()
            if self.as_of_ms is not None:
                version = version_at(location, self.storage_options, self.as_of_ms)
                if version is None:
                    return None
                if folder is not None:
                    require_contents(location, version)
                delta.load_as_version(version)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            if folder is None:
                self._folders()  # delta-rs does not say what the store refuses
            raise UserError(f"{location}: cannot be read\n{reason(error)}") from error
        require_plain_rows(delta, location)
        if self.kept is not None:
            self.kept.tables[name] = delta
        return delta

    def changed_ms(self, name: str, delta: DeltaTable) -> int | None:
        """When the rows of an opened table changed last (ms since the epoch)."""
        version = delta.version()
        known = None if self.kept is None else self.kept.changed.get(name)
        if known is not None and known[0] == version:
            return known[1]
        _, changed_ms = rows_changed_in(self.location(name), self.storage_options, version)
        if self.kept is not None:
            self.kept.changed[name] = version, changed_ms
        return changed_ms

    def small_rows(self, name: str, delta: DeltaTable) -> pa.Table:
        """All rows of a small table."""
        version = delta.version()
        known = None if self.kept is None else self.kept.rows.get(name)
        if known is not None and known[0] == version:
            return known[1]
        rows = delta.to_pyarrow_dataset().to_table()
        if self.kept is not None:
            self.kept.rows[name] = version, rows
        return rows

    def open_all(self, names: Iterable[str]) -> dict[str, DeltaTable | None]:
        """Several tables by name, opened concurrently."""
        wanted = list(names)
        there = set(wanted) if self.folder is not None else self._folders()
        with ThreadPoolExecutor(max_workers=8) as pool:
            opened = pool.map(lambda name: self.open(name) if name in there else None, wanted)
            return dict(zip(wanted, opened, strict=True))

    def _folders(self) -> set[str]:
        """The folders of a warehouse in an object store: one request, where a table that is not there
        takes two."""
        import pyarrow.fs as pafs

        root = pafs.FileSelector("", allow_not_found=True)
        try:
            found = file_system(self.uri, self.storage_options).get_file_info(root)
        except OSError as error:
            unread = UserError(f"{self.uri}: cannot be read\n{reason(error)}")
            raise of_store(error) or unread from error
        return {info.base_name for info in found}

    def require(self) -> None:
        """UserError if there is no warehouse."""
        folder = self.folder
        if folder is None or _is_warehouse(folder):
            return
        what = "has no Weir tables" if folder.is_dir() else "does not exist"
        inside = [each for each in folders.matching(folder, "*") if _is_warehouse(each)]
        remedy = (
            f"{inside[0]} has: name it with --warehouse"
            if inside
            else f"name another with --warehouse, or fill one with {PROGRAM} demo or run"
        )
        raise UserError(f"warehouse: {self.uri} {what}\n{remedy}")


def _is_warehouse(folder: Path) -> bool:
    """Whether a folder has a table of Weir, or what Weir remembers of its tables. A folder that
    only has the name of a table, such as the events of the demo, is no table.
    """
    return (folder / "_weir").is_dir() or any(
        (folder / name / "_delta_log").is_dir() for name in TABLES
    )


@dataclass(frozen=True)
class Recent:
    """The rows of the last `lookback_ms` before `until_ms`, or before the newest row.

    The tables of jobs share one newest row. `events` and `quarantine` go by the time at which a
    record was read, because senders choose the times of their records.
    """

    lookback_ms: int
    until_ms: int | None = None


@dataclass(frozen=True)
class TableState:
    """Progress of a table; all but the name is None if it does not exist."""

    name: str
    version: int | None = None
    committed_ms: int | None = None
    files: int | None = None
    rows: int | None = None
    bytes: int | None = None
    newest_ms: int | None = None


def states(
    warehouse: Warehouse, opened: Mapping[str, DeltaTable | None] | None = None
) -> list[TableState]:
    """The state of every table, from the logs alone; some of them are open already."""
    every = dict(opened or {})
    every |= warehouse.open_all(name for name in TABLES if name not in every)
    return [state(warehouse, name, every[name]) for name in TABLES]


def connect(
    warehouse: Warehouse,
    sql: str | None = None,
    *,
    config: Mapping[str, str] | None = None,
    recent: Recent | None = None,
    span: tuple[int, int] | None = None,
    calendar: bool = False,
) -> duckdb.DuckDBPyConnection:
    """A connection with the tables and views named in `sql`, or with all of them.

    A table without rows is empty. The connection can read below the warehouse and nothing else; the
    caller refuses statements (`only_select`). With `recent` older rows are left out, with
    `span` those with an event time outside it (ms since the epoch, its end excluded). `config` are
    settings of DuckDB, such as threads, memory_limit and ANY_ORDER. With `calendar` times and
    durations (ms) outside the calendar are null, and rows at such times are left out, so that a
    statement can compute with them.
    """
    relations = _relations(warehouse, sql, calendar)
    if recent is not None:
        _leave_out_older(relations, recent)
    for relation in relations:
        relation.leave_out_beyond(span)
    return _with_views(warehouse, sql, relations, config)


def connect_once(
    warehouse: Warehouse,
    sql: str,
    params: Mapping[str, Any],
    *,
    config: Mapping[str, str] | None = None,
    calendar: bool = False,
) -> duckdb.DuckDBPyConnection:
    """As `connect`, for this one statement: files that it cannot need are left out."""
    relations = _relations(warehouse, sql, calendar)
    if any(len(relation.paths) > FEW_FILES for relation in relations):
        words = _words(sql)
        columns = {name: own for name, own in OWN_COLUMNS.items() if name in words}
        columns |= {relation.table.name: relation.columns for relation in relations}
        texts = {name: view.sql for name, view in VIEWS.items() if name in words}
        kept = pruning.needed(sql, params, columns, texts)
        for relation in relations:
            relation.prune(kept.get(relation.table.name))
    return _with_views(warehouse, sql, relations, config)


def _words(sql: str | None) -> set[str]:
    return set(re.findall(r"\w+", sql.lower())) if sql else {*TABLES, *VIEWS}


def _relations(warehouse: Warehouse, sql: str | None, calendar: bool) -> list[Relation]:
    """The tables that a text names, and those of the views that it names."""
    warehouse.require()
    words = _words(sql)
    wanted = words | {table for name in VIEWS if name in words for table in VIEWS[name].reads}
    tables = [name for name in TABLES if name in wanted]
    opened = (
        warehouse.open_all(tables)
        if len(tables) > 1
        else {name: warehouse.open(name) for name in tables}
    )
    return [Relation(TABLES[name], opened[name], calendar) for name in tables]


def _with_views(
    warehouse: Warehouse,
    sql: str | None,
    relations: Sequence[Relation],
    config: Mapping[str, str] | None,
) -> duckdb.DuckDBPyConnection:
    """A connection with these tables and what else a text names."""
    words = _words(sql)
    connection = sealed(warehouse.folder, config, functions=calls_functions(sql or ""))
    # If nothing is read, all are there to be listed, and for DuckDB to suggest.
    for relation in relations or [Relation(table, None) for table in TABLES.values()]:
        relation.add(connection, warehouse)
    for name, view in VIEWS.items():
        if name in words or not relations:
            connection.execute(parsed(connection, f"CREATE TEMP VIEW {name} AS {view.sql}"))
    add_functions(connection, sql or "")
    if STATES in words:
        opened = {relation.table.name: relation.delta for relation in relations}
        _create(connection, STATES, [astuple(each) for each in states(warehouse, opened)])
    if OWNERS in words:
        owners = [tuple(each.model_dump().values()) for each in warehouse.owners]
        _create(connection, OWNERS, [(place, *owner) for place, owner in enumerate(owners)])
    if QUERIES in words:
        _create(connection, QUERIES, list(_queries(warehouse)))
    return connection


def connect_to(
    warehouse: Warehouse,
    opened: Mapping[str, DeltaTable | None],
    config: Mapping[str, str],
    *,
    files: Mapping[str, Sequence[str]] | None = None,
    functions: bool = False,
) -> duckdb.DuckDBPyConnection:
    """A connection with tables as they were opened, whatever is committed meanwhile; `config` as
    for `connect`, `functions` as for `sealed`. With `files`, paths of the log, a table has only the
    rows of its own, and times as for `calendar` in `connect`.
    """
    connection = sealed(warehouse.folder, config, functions=functions)
    for name, delta in opened.items():
        relation = Relation(TABLES[name], delta, calendar=files is not None)
        if files is not None:
            relation.take(files.get(name, ()))
        relation.add(connection, warehouse)
    return connection


def _leave_out_older(relations: Sequence[Relation], recent: Recent) -> None:
    """Restrict every table to its recent rows; a table without statistics stays whole."""
    of_jobs = [r.newest() for r in relations if r.table.job is not None]
    shared = max((ms for ms in of_jobs if ms is not None), default=None)
    for relation in relations:
        newest = relation.newest() if relation.table.job is None else shared
        if recent.until_ms is not None:
            # A look back: the time of reading is unrelated to that time.
            newest = recent.until_ms if relation.table.job is not None else None
        if newest is not None and relation.clock is not None:
            relation.leave_out_before(newest - recent.lookback_ms)


def require_plain_rows(delta: DeltaTable, location: str) -> None:
    """UserError if the rows of a table are not those of its files."""
    features = set(delta.protocol().reader_features or ()) - READER_FEATURES
    if delta.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        features.add("columnMapping")
    elif features == {"columnMapping"}:
        features = set()
    if features:
        raise UserError(
            f"{location}: cannot be read: it uses {', '.join(sorted(features))}, which this"
            " version of Weir does not know\nread it with Spark, or with the Weir that wrote it"
        )


def state(warehouse: Warehouse, name: str, delta: DeltaTable | None) -> TableState:
    """The progress of an opened table, from its log alone."""
    if delta is None:
        return TableState(name)
    adds = delta.get_add_actions(flatten=True)
    there = set(adds.schema.names)

    def values(column: str) -> list[int | None]:
        return list(adds.column(column).to_pylist()) if column in there else []

    rows, sizes = values("num_records"), values("size_bytes")
    # What is refused may be refused for its time.
    clocks = ("ingest_ms",) if name == "quarantine" else NEWEST
    newest = next((f"max.{c}" for c in clocks if c in TABLES[name].names), "")
    version = delta.version()
    return TableState(
        name,
        version,
        warehouse.changed_ms(name, delta),
        len(sizes),
        # Every writer of Weir records the rows of a file; without them only a scan counts them.
        None if None in rows else sum(r for r in rows if r is not None),
        sum(s for s in sizes if s is not None),
        max(
            (v for v in values(newest) if v is not None and FIRST_MS <= v <= LAST_MS), default=None
        ),
    )


def _create(
    connection: duckdb.DuckDBPyConnection, name: str, rows: Sequence[Sequence[Any]]
) -> None:
    """A relation of its own columns with these rows."""
    shown = ", ".join(
        f"CAST(unnest(${place}) AS {kind}) AS {column}"
        for place, (column, kind) in enumerate(OWN_COLUMNS[name].items(), 1)
    )
    connection.execute(
        f"CREATE TEMP TABLE {name} AS SELECT {shown}",
        [[row[place] for row in rows] for place in range(len(OWN_COLUMNS[name]))],
    )


def _queries(warehouse: Warehouse) -> Iterator[Sequence[Any]]:
    """The batches of every query, from its checkpoint; none if the warehouse is no folder."""
    folder = warehouse.folder
    for checkpoint in [] if folder is None else folders.matching(folder, "_weir/checkpoints/*"):
        begun = _newest_batch(checkpoint / "offsets")
        committed = _newest_batch(checkpoint / "commits")
        if begun is not None:
            is_open = committed is None or committed[0] < begun[0]
            yield checkpoint.name, begun[0], is_open, begun[1], committed and committed[1]


def _newest_batch(folder: Path) -> tuple[int, int] | None:
    """Number and time (ms since the epoch) of the newest batch in a log of Spark's."""
    found = [file for file in folders.files(folder) if is_digits(file.path.name)]
    numbered = [(int(file.path.name), file.changed_ns // 1_000_000) for file in found]
    return max(numbered, default=None)
