"""Tables for the tests of maintenance: rows with a value of every type, in many small files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from app.config.settings import Settings
from app.read.relations import Warehouse
from app.run.maintenance.opened import Opened
from app.tables.commit import Writer
from app.tables.definitions import TABLES

LATER_MS = 10**13
"""A time at which every file is settled."""
LARGE = 2**53 + 1


def value(kind: pa.DataType, number: int) -> Any:
    """A value of a column in row `number`; every third one is null."""
    if number % 3 == 2:
        return None
    if pa.types.is_map(kind):
        return [("b", value(kind.item_type, 0)), ("a", value(kind.item_type, 1))]
    if pa.types.is_list(kind):
        return [value(kind.value_type, n) for n in range(number % 4)]
    if pa.types.is_date(kind):
        return 20_000 + number % 2
    if pa.types.is_boolean(kind):
        return number % 2 == 0
    if pa.types.is_floating(kind):
        return number / 7
    if pa.types.is_binary(kind):
        return bytes([number % 256, 0, 255])
    if pa.types.is_string(kind):
        return f"{(number * 7) % 10} '\u20ac\U0001f600"
    small = pa.types.is_int32(kind) or pa.types.is_int16(kind)
    return number if small else (-1) ** number * (LARGE + number)


def rows(name: str, numbers: range) -> pa.Table:
    """Rows of a table, one per number."""
    schema = TABLES[name].schema
    columns = []
    for field in schema:
        if field.name in TABLES[name].partition_by:
            columns.append(pa.array([20_000 + n % 2 for n in numbers], pa.int32()).cast(field.type))
        else:
            columns.append(
                pa.array([value(field.type, n + len(columns)) for n in numbers], field.type)
            )
    return pa.table(columns, schema=schema)


def plain(table: pa.Table) -> list[str]:
    """Rows that can be compared, in an order of their own."""
    return sorted(map(repr, table.to_pylist()))


def writer(settings: Settings, query: str = "govern") -> Writer:
    """A writer that needs no Spark."""
    return Writer(settings.location, query, settings.maintenance.history_ms)


def fill(settings: Settings, name: str, batches: range) -> None:
    """Append a batch of three rows for each number."""
    appending = writer(settings)
    for batch in batches:
        appending.append(name, rows(name, range(3 * batch, 3 * batch + 3)), batch)


def opened(settings: Settings, name: str) -> Opened:
    """A table as maintenance opens it."""
    warehouse = Warehouse.of(settings.location)
    delta = warehouse.open(name)
    assert delta is not None
    return Opened(warehouse, name, delta)


def found(settings: Settings, name: str) -> pa.Table:
    """Every row of a table."""
    return opened(settings, name).delta.to_pyarrow_table()


def commits(settings: Settings, name: str) -> Iterator[int]:
    """The versions whose commits the log has, oldest first."""
    from app.tables.log_files import commit_files

    yield from (int(path.stem) for path in commit_files(f"{settings.warehouse}/{name}"))
