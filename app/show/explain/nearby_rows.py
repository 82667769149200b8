"""Reads a warehouse for explanations: each table at one version, rows with their keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import duckdb
from deltalake import DeltaTable

from app.errors import UserError
from app.read.relations import NARROWER, Warehouse, connect, connect_once, first_lines
from app.read.table_relation import FEW_FILES, GONE
from app.show.explain.sentence import Row
from app.tables.definitions import TABLES
from state.jobs import DECLARED

EVENT_KEY = ("source_partition", "source_offset")
OTHER_KEYS = {
    "coverage_gaps": ("cluster", "broker", "source_feed", "seq", "ts_wall_ms", "job"),
}
PARAMETER = re.compile(r"\$([a-z_]+)")
HIDDEN = frozenset({"payload", "raw"})
"""Columns with content of clients, which are never shown."""
OF_EVENTS = frozenset(
    {
        "event_type",
        "source_feed",
        "cluster",
        "broker",
        "seq",
        "ts_mono_ns",
        "ts_wall_ms",
        "policy_json",
        "source_partition",
        "source_offset",
    }
)
"""Columns of the archive that a policy has; reading all takes three times as long."""


@dataclass(frozen=True)
class Snapshot(Warehouse):
    """A warehouse whose tables keep the version at which they were first opened."""

    opened: dict[str, DeltaTable | None] = field(default_factory=dict, repr=False, compare=False)

    def open(self, name: str) -> DeltaTable | None:
        """A table at the version of its first use."""
        if name not in self.opened:
            self.opened[name] = super().open(name)
        return self.opened[name]


class SnapshotReader:
    """Answers statements over one snapshot of some tables.

    Tables of few files share a connection; of the others each statement opens what it needs.
    """

    def __init__(self, warehouse: Warehouse, tables: Iterable[str]) -> None:
        self._warehouse = Snapshot(warehouse.uri, warehouse.storage_options, warehouse.as_of_ms)
        opened = self._warehouse.open_all(tables)
        self._small = [
            name
            for name, delta in opened.items()
            if delta is not None and delta.get_add_actions().num_rows <= FEW_FILES
        ]

    @cached_property
    def _shared(self) -> duckdb.DuckDBPyConnection:
        return connect(self._warehouse, " ".join(self._small))

    def has(self, table: str) -> bool:
        """Whether a table exists."""
        return self._warehouse.open(table) is not None

    def dicts(self, sql: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """The answer to one statement."""
        params = dict(params or {})
        read = {word for word in re.findall(r"\w+", sql) if word in TABLES}
        alone = not read or not read <= set(self._small)
        try:
            connection = connect_once(self._warehouse, sql, params) if alone else self._shared
            connection.execute(sql, params)
            names = [column[0] for column in connection.description or []]
            return [dict(zip(names, row, strict=True)) for row in connection.fetchall()]
        except duckdb.IOException as error:
            raise UserError(f"explain: {first_lines(error)}\n{GONE}") from error
        except duckdb.OutOfMemoryException as error:
            raise UserError(f"explain: {first_lines(error)}\n{NARROWER}") from error

    def rows(self, table: str, where: str, params: Mapping[str, Any], rest: str = "") -> list[Row]:
        """Rows of a table; `rest` orders and limits them."""
        if not self.has(table):
            return []
        sql = f"SELECT {columns(table)} FROM {table} AS t WHERE {where} {rest}"
        return [row_of(table, values) for values in self.dicts(sql, used(sql, params))]

    def summary(self, table: str, what: str, where: str, params: Mapping[str, Any]) -> Row:
        """One row of sums over a table."""
        sql = f"SELECT {what} FROM {table} AS t WHERE {where}"
        (values,) = self.dicts(sql, used(sql, params))
        return summary_of(table, what, where, params, values)


def summary_of(
    table: str, what: str, where: str, params: Mapping[str, Any], values: Mapping[str, Any]
) -> Row:
    """Sums over a table as a row."""
    return Row(table, {}, values, f"SELECT {what} FROM {table} AS t WHERE {inlined(where, params)}")


def columns(table: str) -> str:
    """The columns of a table that an explanation may show."""
    return ", ".join(f't."{c}"' for c in _shown(table))


def _shown(table: str) -> list[str]:
    return [
        name
        for name in TABLES[table].names
        if name not in HIDDEN and (table != "events" or name in OF_EVENTS)
    ]


def row_of(table: str, values: Mapping[str, Any]) -> Row:
    """A row with its key and the statement that returns it."""
    job = TABLES[table].job
    names: tuple[str, ...] = OTHER_KEYS.get(table, EVENT_KEY)
    if job:
        names = (*DECLARED[job].row_key, *TABLES[table].more_key)
    key = {name: values[name] for name in names}
    conditions = " AND ".join(
        f't."{name}" IS NULL' if value is None else f't."{name}" = {literal(value)}'
        for name, value in key.items()
    )
    kept = {name: values[name] for name in _shown(table)}
    return Row(table, key, kept, f"SELECT {columns(table)} FROM {table} AS t WHERE {conditions}")


def in_order(sign: str, columns: Sequence[str], row: Row) -> str:
    """The condition that rows are before (<, <=) or after (>, >=) a row in the order of columns.

    Written out, since DuckDB makes one BETWEEN of two comparisons of tuples and then refuses it.
    """
    *before, last = columns
    condition = f"t.{last} {sign} {literal(row[last])}"
    for column in reversed(before):
        value = literal(row[column])
        condition = f"(t.{column} {sign[0]} {value} OR (t.{column} = {value} AND {condition}))"
    return condition


def used(sql: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that a statement names; DuckDB refuses others."""
    named = set(PARAMETER.findall(sql))
    return {name: value for name, value in params.items() if name in named}


def inlined(sql: str, params: Mapping[str, Any]) -> str:
    """A statement with the values of its parameters."""
    return PARAMETER.sub(lambda found: literal(params[found[1]]), sql)


def literal(value: Any) -> str:
    """A value as an SQL literal."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(literal(v) for v in value) + "]"
    return "'" + str(value).replace("'", "''") + "'"
