"""Rows of an answer as an aligned table for reading, as JSON or as CSV."""

from __future__ import annotations

import base64
import csv
import json
import math
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain, compress
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple, TextIO
from uuid import UUID

from app.terminal.amounts import AMOUNTS, EPOCH_MS, MOST, heading, unit_of, unit_of_kind
from app.terminal.moments import instant
from app.terminal.printable import in_json, printable

SHOWN_ROWS = 200
"""Rows of a printed table; JSON and CSV have all."""
COUNTED_ROWS = 1000
"""Rows that are counted beyond the printed ones before the count stops."""
SHOWN_COLUMNS = 8
"""Columns of a printed answer to a ready question."""
LEAST_TEXT = 24
"""Least width of a wrapped last column on a terminal."""


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
    if isinstance(value, datetime):
        return instant(value)
    if isinstance(value, date | time):
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
        out.write(between + in_json(json.dumps(record, ensure_ascii=False)))
        between = ",\n"
    out.write("[]\n" if between == "[\n" else "\n]\n")


def write_csv(names: Sequence[str], rows: Iterable[Sequence[Any]], out: TextIO) -> None:
    """Comma-separated values with a header; null is empty, lists and maps are JSON."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_cell(value) for value in row] for row in rows)


def write_spreadsheet(names: Sequence[str], rows: Iterable[Sequence[Any]], out: TextIO) -> None:
    """CSV in which a text that a spreadsheet takes for a formula begins with an apostrophe."""

    def quoted(value: Any) -> str:
        text = _cell(value)
        is_text = not isinstance(value, int | float | Decimal)
        return f"'{text}" if is_text and text.startswith(FORMULAS) else text

    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([quoted(value) for value in row] for row in chain([names], rows))


class ShownColumns(NamedTuple):
    """How the columns of a printed table are shown."""

    units: Mapping[str, str] = MappingProxyType({})
    """Units of numbers that the name does not tell; that of a column's name is in each row."""
    first: Sequence[str] | None = None
    """At most SHOWN_COLUMNS are printed, those of these names (empty: the first ones); None: all."""
    rest: str = "--wide shows"
    """What has the others, which are named."""


def write_table(
    names: Sequence[str],
    rows: Iterable[Sequence[Any]],
    out: TextIO,
    shown_rows: int | None = SHOWN_ROWS,
    more: str = "--rows N shows more",
    reason: Callable[[], str] | None = None,
    columns: ShownColumns | None = None,
) -> None:
    """Print aligned columns, numbers to the right, of at most `shown_rows` rows (None: all).

    Numbers are rounded and have the unit of their column, by `columns` or by its name; whole numbers
    without a unit are as they are. A unit that is the name of a column is that of the row's value
    there. Columns in which no row has a value are named below. The number of rows follows, with
    `more`, or the `reason` why there are none. On a terminal a table that is too wide has its last
    column wrapped, or one column per line.
    """
    units, first, rest = columns or ShownColumns()
    kept: list[Sequence[Any]] = []
    beyond = 0
    for row in rows:
        if shown_rows is None or len(kept) < shown_rows:
            kept.append(row)
        elif (beyond := beyond + 1) == COUNTED_ROWS:
            break
    numbers = [all(_is_number(row[i]) for row in kept) for i in range(len(names))]
    in_units = [_units(names, i, kept, units) if numbers[i] else None for i in range(len(names))]
    cells = [
        [
            printable(" ".join(_cell(value).split("\n"))) if of is None else _amount(value, of[r])
            for value, of in zip(row, in_units, strict=True)
        ]
        for r, row in enumerate(kept)
    ]
    empty = [bool(kept) and all(row[i] is None for row in kept) for i in range(len(names))]
    filled = [i for i, none in enumerate(empty) if not none] or range(len(names))
    table = [_headings(names, in_units), *cells]
    wanted = [i for i in filled if names[i] in (first or names)]
    shown = filled if first is None else (wanted or list(filled))[:SHOWN_COLUMNS]
    headings, *lines = ([line[i] for i in shown] for line in table)
    for line in _laid_out(headings, lines, [numbers[i] for i in shown], _width(out)):
        out.write(line.rstrip() + "\n")
    left = [names[i] for i in filled if i not in shown]
    if left and kept:
        out.write(f"{rest} {', '.join(left)}\n")
    elif not left and len(filled) < len(names):
        out.write(f"without a value: {', '.join(compress(names, empty))}\n")
    if beyond:
        total = len(kept) + beyond
        least = "at least " if beyond == COUNTED_ROWS else ""
        out.write(f"{len(kept):,} of {least}{total:,} rows; {more}\n")
    elif not kept:
        why = reason() if reason is not None else ""
        out.write(f"no rows: {why}\n" if why else "no rows\n")


def _units(
    names: Sequence[str], column: int, rows: Sequence[Sequence[Any]], units: Mapping[str, str]
) -> list[str | None] | None:
    """The unit of each number of a column; None if it is shown as it is: it has no numbers, or is a
    time."""
    numbers = [row[column] for row in rows if row[column] is not None]
    unit = units.get(names[column]) or unit_of(names[column])
    if not numbers or (unit == "ms" and max(map(abs, numbers)) >= EPOCH_MS):
        return None
    if units.get(names[column]) in names:
        kinds = names.index(units[names[column]])
        return [unit_of_kind(str(row[kinds])) for row in rows]
    return [unit] * len(rows)


def _headings(names: Sequence[str], in_units: Sequence[list[str | None] | None]) -> list[str]:
    """The names of columns without a unit that the numbers have, as far as they differ then."""
    short = [
        name if not of or of[0] is None else heading(name)
        for name, of in zip(names, in_units, strict=True)
    ]
    return [
        one if [*short, *names].count(one) == 1 + (one == name) else name
        for one, name in zip(short, names, strict=True)
    ]


def _amount(value: Any, unit: str | None) -> str:
    """A number with its unit; without one a whole number as it is, another with three digits.

    A whole -1 is as it is, too: columns have it for what is not known.
    """
    value = plain(value)
    if value is None:
        return ""
    if unit is not None and not (isinstance(value, int) and value == -1):
        return AMOUNTS[unit](value)
    if isinstance(value, int):
        return str(value)
    whole = value == round(value) or abs(value) >= 100
    return f"{value:.0f}" if whole and abs(value) < MOST else f"{value:.3g}"


def _width(out: TextIO) -> int | None:
    """Width of the terminal; None for a file or pipe, whose lines may have any length."""
    return shutil.get_terminal_size().columns if out.isatty() else None


def _laid_out(
    names: Sequence[str],
    cells: Sequence[Sequence[str]],
    numbers: Sequence[bool],
    width: int | None,
) -> Iterator[str]:
    """The lines of a table, wrapped to a width between words."""
    if not names:
        return
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    before = sum(widths[:-1]) + 2 * (len(names) - 1)
    if width is not None and before + widths[-1] > width:
        if numbers[-1] or width - before < LEAST_TEXT:
            yield from _one_a_line(names, cells, width)
            return
        widths[-1] = width - before
    for line in (list(names), ["-" * one for one in widths], *cells):
        *first, last = line
        start = "".join(
            (c.rjust(w) if n else c.ljust(w)) + "  "
            for c, w, n in zip(first, widths, numbers, strict=False)
        )
        parts = textwrap.wrap(last, widths[-1], break_long_words=False, break_on_hyphens=False)
        for i, part in enumerate(parts or [""]):
            shown = part.rjust(widths[-1]) if numbers[-1] else part
            yield (start if i == 0 else " " * before) + shown


def _one_a_line(names: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Every row as a block with one line per column that has a value."""
    name_width = max(map(len, names))
    for number, row in enumerate(cells, 1):
        yield f"-- {number} ".ljust(width, "-")
        for name, cell in filter(itemgetter(1), zip(names, row, strict=True)):
            yield from textwrap.wrap(
                cell,
                width,
                initial_indent=name.ljust(name_width) + "  ",
                subsequent_indent=" " * (name_width + 2),
                break_long_words=False,
                break_on_hyphens=False,
            )


def _is_number(value: Any) -> bool:
    return value is None or (
        isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    )


def _cell(value: Any) -> str:
    value = plain(value)
    if value is None:
        return ""
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else str(value)


FORMULAS = ("=", "+", "-", "@", "\t", "\r")
WRITERS = {
    "table": write_table,
    "json": write_json,
    "csv": write_csv,
    "spreadsheet": write_spreadsheet,
}
