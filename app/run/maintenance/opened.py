"""A table under maintenance: its definition, its log and its location."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from app.read.relations import Warehouse
from app.tables.definitions import TABLES, Table
from app.tables.object_store import file_system

if TYPE_CHECKING:
    from deltalake import DeltaTable

CLOCKS = ("ingest_ms", "checked_ms", "compared_ms", "polled_ms", "made_ms")
"""Columns that give the age of rows in tables that belong to no job."""


@dataclass(frozen=True)
class Opened:
    """A table of a warehouse at the version of `delta`."""

    warehouse: Warehouse
    name: str
    delta: DeltaTable

    @property
    def table(self) -> Table:
        """Its definition."""
        return TABLES[self.name]

    @property
    def location(self) -> str:
        """Its path."""
        return self.warehouse.location(self.name)

    @property
    def clock(self) -> str | None:
        """The column that gives the age of its rows."""
        return clock_of(self.table)

    @cached_property
    def files(self) -> Any:
        """Its folder, as a file system of pyarrow."""
        return file_system(self.location, self.warehouse.storage_options)


def clock_of(table: Table) -> str | None:
    """The column that gives the age of a table's rows; None if there is none."""
    if table.job is not None:
        return "ts_wall_ms"
    return next((name for name in CLOCKS if name in table.names), None)
