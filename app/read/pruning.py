"""Finds the files of a table that a statement can need, by the statistics in the Delta log.

DuckDB opens the footer of every file that it gets. So the statement is first planned over empty
tables with the same columns. Filters that the plan pushes into a scan (comparisons of an integer
column with a number, and that a column has a value) are compared with the least and greatest values
of each file in the log, and with how many rows have none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import duckdb

from app.read.databases import sealed
from app.read.duckdb_functions import add_functions, calls_functions

_TERM = r"\((\w+) (>=|<=|!=|=|>|<) (-?\d+)\)"
_FILTER = re.compile(rf"{_TERM}|\({_TERM}(?: AND {_TERM})+\)")
"""A complete filter of the plan. A filter with anything else, such as a string or an OR, does not
match.
"""
_TERMS = re.compile(_TERM)
_THERE = re.compile(r"\((\w+) IS NOT NULL\)")
Bounds = dict[str, tuple[int, int]]
"""Least and greatest value of the wanted rows, by column; a row without a value is not wanted."""
_LEAST, _MOST = -(2**63), 2**63 - 1
_PLANNING = {"disabled_optimizers": "statistics_propagation"}
"""By the statistics of an empty table no row can match."""


def needed(
    sql: str,
    params: Mapping[str, Any],
    tables: Mapping[str, Mapping[str, str]],
    views: Mapping[str, str],
) -> dict[str, list[Bounds]]:
    """Bounds of the rows that each scan of a table wants; a table that needs all files has none.

    `tables` has the SQL types of the columns of each table. A row is needed if it is within the
    bounds of at least one scan.
    """
    try:
        with sealed(None, _PLANNING, functions=calls_functions(sql)) as connection:
            for name, columns in tables.items():
                typed = ", ".join(f'"{column}" {kind}' for column, kind in columns.items())
                connection.execute(f'CREATE TEMP TABLE "{name}" ({typed})')
            add_functions(connection, sql)
            for name, text in views.items():
                connection.execute(f'CREATE TEMP VIEW "{name}" AS {text}')
            row = connection.execute(f"EXPLAIN (FORMAT json) {sql}", dict(params)).fetchone()
        plan = json.loads(row[1])[0] if row else {}
    except (duckdb.Error, ValueError):
        return {}  # the statement itself reports the mistake
    wanted: dict[str, list[Bounds]] = {}
    for info in _scans(plan):
        wanted.setdefault(info["Table"].rsplit(".", 1)[-1], []).append(_bounds(info))
    return {name: scans for name, scans in wanted.items() if all(scans)}


def overlaps(
    scans: Sequence[Bounds],
    least: Mapping[str, Any],
    most: Mapping[str, Any],
    empty: Collection[str] = (),
) -> bool:
    """Whether a file may have a row that a scan wants, by its least and greatest values and the
    columns without any.

    An unknown value excludes nothing.
    """
    return any(
        all(c not in empty and _meets(b, least.get(c), most.get(c)) for c, b in scan.items())
        for scan in scans
    )


def _meets(bounds: tuple[int, int], least: Any, most: Any) -> bool:
    below = isinstance(most, int) and most < bounds[0]
    above = isinstance(least, int) and least > bounds[1]
    return not below and not above


def _scans(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    info = node.get("extra_info", {})
    if "Table" in info:
        yield info
    for child in node.get("children", []):
        yield from _scans(child)


def _bounds(info: Mapping[str, Any]) -> Bounds:
    filters = info.get("Filters", [])
    bounds: Bounds = {}
    for text in [filters] if isinstance(filters, str) else filters:
        if there := _THERE.fullmatch(text):
            bounds.setdefault(there[1], (_LEAST, _MOST))
        if not _FILTER.fullmatch(text):
            continue
        for column, sign, number in _TERMS.findall(text):
            value = int(number)
            least, most = bounds.get(column, (_LEAST, _MOST))
            if sign in ("=", ">=", ">"):
                least = max(least, value + (sign == ">"))
            if sign in ("=", "<=", "<"):
                most = min(most, value - (sign == "<"))
            bounds[column] = (least, most)
    return bounds
