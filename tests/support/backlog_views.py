"""What tests share of backlog views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from app.config.settings import Settings
from app.read.databases import fileless
from app.tables.definitions import TABLES, VIEWS
from app.tables.small_files import path_in

READS = ("backlog_checks", "backlog_evictions")
Rows = list[dict[str, Any]]


def asked(tables: dict[str, Rows], view: str) -> Rows:
    """The rows of a view over these tables."""
    with fileless() as connection:
        for table, rows in tables.items():
            connection.register(table, pa.Table.from_pylist(rows, schema=TABLES[table].schema))
        found: Rows = connection.sql(VIEWS[view].sql).to_arrow_table().to_pylist()
    return found


def stored(config: Settings, tables: Sequence[str] = READS) -> dict[str, Rows]:
    """Rows of tables; one that is not there has none."""
    return {
        name: DeltaTable(path).to_pyarrow_table().to_pylist()
        if DeltaTable.is_deltatable(path)
        else []
        for name in tables
        for path in [path_in(config.location, name)]
    }
