"""The commands `tables` and `query`: what there is, and SQL over it, without Spark."""

from __future__ import annotations

import base64
import csv
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, TextIO
from uuid import UUID

import duckdb
import pyarrow as pa

from app.errors import UserError, did_you_mean
from app.tables import TABLES, VIEWS
from app.warehouse import Warehouse, connect, first_lines, only_select

if TYPE_CHECKING:
    from app.settings import Settings

Output = Literal["table", "json", "csv"]
SHOWN_ROWS = 200
"""Rows that a table for reading shows; JSON and CSV have them all."""
SHOWN_WIDTH = 60


def tables(
    settings: Settings, name: str | None = None, sql: bool = False, as_json: bool = False
) -> int:
    """List tables and views with their rows, or describe one with its columns; 0."""
    if name is None:
        return _list(Warehouse.of(settings), as_json)
    if name not in TABLES and name not in VIEWS:
        raise UserError(f"tables: there is no {name} ({did_you_mean(name, [*TABLES, *VIEWS])})")
    if sql:
        if name not in VIEWS:
            raise UserError(f"tables --sql: {name} is a table; views are {', '.join(VIEWS)}")
        print(VIEWS[name].sql)
        return 0
    return _describe(Warehouse.of(settings), name, as_json)


def query(settings: Settings, sql: str, output: Output = "table") -> int:
    """Run one reading statement over the tables and views and print its rows; 0."""
    connection = connect(Warehouse.of(settings), sql)
    only_select(connection, sql, "query")
    try:
        connection.execute(sql)
        names = [column[0] for column in connection.description or []]
        WRITERS[output](names, _rows(connection), sys.stdout)
    except duckdb.Error as error:
        raise UserError(f"query: {first_lines(error)}") from error
    return 0


def _list(warehouse: Warehouse, as_json: bool) -> int:
    warehouse.require()
    names = ["name", "kind", "rows", "bytes", "meaning"]
    rows: list[list[Any]] = []
    for table in TABLES.values():
        delta = warehouse.open(table.name)
        if delta is None:
            count, size = 0, 0
        else:
            adds = pa.table(delta.get_add_actions())
            # Every writer of Weir records the rows of a file; without them only a scan would tell.
            count, size = (sum(adds.column(c).to_pylist()) for c in ("num_records", "size_bytes"))
        rows.append([table.name, "table", count, size, table.meaning])
    rows += [[view.name, "view", None, None, view.meaning] for view in VIEWS.values()]
    (write_json if as_json else write_table)(names, rows, sys.stdout)
    return 0


def _describe(warehouse: Warehouse, name: str, as_json: bool) -> int:
    meanings = {c.name: c.meaning for c in TABLES[name].columns} if name in TABLES else {}
    connection = connect(warehouse, name)
    described = connection.execute(f"DESCRIBE {name}").fetchall()
    rows = [[column, kind.lower(), meanings.get(column, "")] for column, kind, *_ in described]
    if not as_json:
        print((TABLES[name] if name in TABLES else VIEWS[name]).meaning + "\n")
    (write_json if as_json else write_table)(["column", "type", "meaning"], rows, sys.stdout)
    return 0


def _rows(connection: duckdb.DuckDBPyConnection) -> Iterator[Sequence[Any]]:
    while block := connection.fetchmany(2000):
        yield from block


def plain(value: Any) -> Any:
    """A value as JSON has it: dates in ISO form, bytes in base64, no NaN; integers are exact."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, timedelta | UUID):
        return str(value)
    return value


def write_json(names: Sequence[str], rows: Iterable[Sequence[Any]], out: TextIO) -> None:
    """An array of objects, one per line, written as the rows come."""
    unique = [n if n not in names[:i] else f"{n}_{i}" for i, n in enumerate(names)]
    between = "[\n"
    for row in rows:
        record = dict(zip(unique, map(plain, row), strict=True))
        out.write(between + json.dumps(record, ensure_ascii=False))
        between = ",\n"
    out.write("[]\n" if between == "[\n" else "\n]\n")


def write_csv(names: Sequence[str], rows: Iterable[Sequence[Any]], out: TextIO) -> None:
    """Comma-separated values with a header; null is empty, lists and maps are JSON."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([_cell(value) for value in row])


def write_table(names: Sequence[str], rows: Iterable[Sequence[Any]], out: TextIO) -> None:
    """Aligned columns for reading: numbers to the right, long cells and long results cut."""
    shown: list[list[str]] = []
    numbers = [True] * len(names)
    more = 0
    for row in rows:
        if len(shown) == SHOWN_ROWS:
            more += 1
            continue
        numbers = [
            n and (v is None or (isinstance(v, int | float | Decimal) and not isinstance(v, bool)))
            for n, v in zip(numbers, row, strict=True)
        ]
        last = len(row) - 1
        cells = [_cell(v).replace("\n", " ") for v in row]
        shown.append([c if i == last else _cut(c) for i, c in enumerate(cells)])
    widths = [max(map(len, column)) for column in zip(names, *shown, strict=True)]
    for line in (list(names), ["-" * width for width in widths], *shown):
        cells = [
            c.rjust(w) if n else c.ljust(w) for c, w, n in zip(line, widths, numbers, strict=True)
        ]
        out.write("  ".join(cells).rstrip() + "\n")
    if more:
        out.write(f"{more} more rows: --csv and --json give all, LIMIT fewer\n")
    elif not shown:
        out.write("no rows\n")


def _cell(value: Any) -> str:
    value = plain(value)
    if value is None:
        return ""
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_WIDTH else text[: SHOWN_WIDTH - 1] + "…"


WRITERS = {"table": write_table, "json": write_json, "csv": write_csv}
