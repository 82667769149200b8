"""SQL statements that register the tables and views of a warehouse in another engine."""

from __future__ import annotations

from deltalake import DeltaTable

from app.read.relations import Warehouse
from app.read.table_relation import FIRST_MS, LAST_MS
from app.tables.definitions import TABLES, VIEWS

ENGINES = ("spark", "duckdb")


def ddl(warehouse: Warehouse, engine: str, name: str | None = None) -> tuple[list[str], list[str]]:
    """The statements in order, and the names of tables that do not exist yet.

    With a name, only that table, or that view and what it reads. Views over missing tables are left
    out, because no engine accepts them. Each table has a view `<table>_times` beside it, whose times
    are timestamps.
    """
    views = list(VIEWS) if name is None else [n for n in VIEWS if n == name]
    tables = (
        list(TABLES)
        if name is None
        else [t for t in TABLES if t == name or any(t in VIEWS[v].reads for v in views)]
    )
    opened = warehouse.open_all(tables)
    there = [table for table in tables if opened[table] is not None]
    statements = ["INSTALL delta", "LOAD delta"] if engine == "duckdb" else []
    statements += [_table(engine, table, _absolute(warehouse, table)) for table in there]
    for table in there if name is None else {name} & set(there):
        delta = opened[table]
        assert delta is not None
        statements.append(_times(engine, table, delta))
    statements += [
        f"CREATE OR REPLACE VIEW {view} AS\n{VIEWS[view].sql}"
        for view in views
        if set(VIEWS[view].reads) <= set(there)
    ]
    return statements, [table for table in tables if table not in there]


def _table(engine: str, name: str, location: str) -> str:
    if engine == "duckdb":
        quoted = location.replace("'", "''")
        return f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM delta_scan('{quoted}')"
    quoted = location.replace("\\", "\\\\").replace("'", "\\'")
    return f"CREATE TABLE IF NOT EXISTS {name} USING DELTA LOCATION '{quoted}'"


def _absolute(warehouse: Warehouse, name: str) -> str:
    folder = warehouse.folder
    return warehouse.location(name) if folder is None else str(folder.absolute() / name)


def _times(engine: str, name: str, delta: DeltaTable) -> str:
    """The view of a table whose columns of times, ms since the epoch, are timestamps without `_ms` in
    their names; null beyond the years 1 to 9999."""
    quote, made = ("`", "timestamp_millis") if engine == "spark" else ('"', "epoch_ms")
    of_times = {column.name for column in TABLES[name].columns if "epoch" in column.meaning}
    shown = []
    for field in delta.schema().fields:
        column = f"{quote}{field.name}{quote}"
        if field.name in of_times and field.name.endswith("_ms"):
            time = f"{quote}{field.name.removesuffix('_ms')}{quote}"
            valid = f"{column} BETWEEN {FIRST_MS} AND {LAST_MS}"
            column = f"CASE WHEN {valid} THEN {made}({column}) END AS {time}"
        shown.append(column)
    return f"CREATE OR REPLACE VIEW {name}_times AS\nSELECT {', '.join(shown)}\nFROM {name}"
