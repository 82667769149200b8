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
from functools import cache, cached_property
from itertools import compress
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
from app.read.databases import literal, parsed, sealed
from app.read.duckdb_functions import add_functions, calls_functions
from app.read.read_only import first_lines, only_select
from app.tables.definitions import TABLES, VIEWS, Table
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

GLOB = re.compile(r"[*?]")
"""Characters that DuckDB would expand in a file name."""
READER_FEATURES = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
"""Features of the Delta protocol that leave the rows of a table as those of its files."""
FEW_FILES = 16
"""Up to this number all files are opened: that takes less time than planning which are needed."""
SMALL_ROWS, SMALL_BYTES = 10_000, 1 << 20
"""A table of at most so much is read once, into memory, for all statements of a connection."""
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

GONE = (
    "a file that is gone was removed by VACUUM or compaction: ask again, and with --as-of take a "
    "later time"
)

FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999 (ms since the epoch). Clocks may be outside, where no calendar applies."""
EVENT_TIMES = ("pass_ms", "window_start_ms", "at_ms", "ts_wall_ms")
"""Columns with the time of a row; the first one present is used."""
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


def _relations(warehouse: Warehouse, sql: str | None, calendar: bool) -> list[_Relation]:
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
    return [_Relation(TABLES[name], opened[name], calendar) for name in tables]


def _with_views(
    warehouse: Warehouse,
    sql: str | None,
    relations: Sequence[_Relation],
    config: Mapping[str, str] | None,
) -> duckdb.DuckDBPyConnection:
    """A connection with these tables and what else a text names."""
    words = _words(sql)
    connection = sealed(warehouse.folder, config, functions=calls_functions(sql or ""))
    # If nothing is read, all are there to be listed, and for DuckDB to suggest.
    for relation in relations or [_Relation(table, None) for table in TABLES.values()]:
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
        relation = _Relation(TABLES[name], delta, calendar=files is not None)
        if files is not None:
            relation.take(files.get(name, ()))
        relation.add(connection, warehouse)
    return connection


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


class _Relation:
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


def _leave_out_older(relations: Sequence[_Relation], recent: Recent) -> None:
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
