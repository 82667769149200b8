"""Sentences whose every number is computed from rows, by an expression that is kept with it.

A template is a format string. Its fields are expressions over rows by name and a unit, such as
`{end.ts_mono_ns - start.ts_mono_ns:ns}`: the sentence contains the value of the expression, so that
a reader can compute it again from the rows.
"""

from __future__ import annotations

import ast
import operator
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from app.terminal.moments import instant_of

NS_PER_S = 10**9


@dataclass(frozen=True)
class Row:
    """Evidence of a sentence: a row, and the statement that returns it."""

    table: str
    key: Mapping[str, Any]
    values: Mapping[str, Any]
    sql: str

    def __getitem__(self, column: str) -> Any:
        return self.values[column]


@dataclass(frozen=True)
class Number:
    """A number as printed in a sentence, and the expression over the rows that gives it."""

    shown: str
    expression: str
    unit: str


@dataclass(frozen=True)
class Sentence:
    """One decision as text."""

    at_ms: int
    text: str
    rule: str
    rows: Mapping[str, Row]
    """The evidence by the name that the expressions use; the first row is the decision."""
    numbers: Sequence[Number]
    order: tuple[Any, ...] = field(default=())
    """Order among the sentences of one millisecond."""

    @property
    def decision(self) -> Row:
        """The row that the sentence is about."""
        return next(iter(self.rows.values()))


def compose(
    at_ms: int, rule: str, template: str, order: tuple[Any, ...] = (), /, **rows: Row
) -> Sentence:
    """A sentence from a template over `rows`."""
    formatter = _Formatter(rows)
    text = formatter.format(template)
    return Sentence(at_ms, text, rule, rows, tuple(formatter.numbers), order)


def evaluate(expression: str, rows: Mapping[str, Mapping[str, Any] | Row]) -> Any:
    """The value of an expression over rows: columns, numbers, + - * / and min, max."""
    return _value(ast.parse(expression, mode="eval").body, rows)


_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_CALLS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "len": len}


def _value(node: ast.expr, rows: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Attribute(value=ast.Name(id=name), attr=column):
            return rows[name][column]
        case ast.BinOp(left=left, op=op, right=right):
            return _BINARY[type(op)](_value(left, rows), _value(right, rows))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _CALLS[name](*(_value(argument, rows) for argument in arguments))
    raise ValueError(f"not an expression over rows: {ast.unparse(node)}")


class _Formatter(string.Formatter):
    """Fills in a template and collects its numbers; a field without a unit is text."""

    def __init__(self, rows: Mapping[str, Row]) -> None:
        self._rows = rows
        self.numbers: list[Number] = []

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        return field_name, field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        found = evaluate(value, self._rows)
        if not format_spec or found is None:
            return "unknown" if found is None else str(found)
        unit, _, noun = format_spec.partition(" ")
        shown = UNITS[unit](found)
        if noun:
            shown += f" {noun if shown == '1' else plural(noun)}"
        self.numbers.append(Number(shown, value, format_spec))
        return shown


def plural(noun: str) -> str:
    """The plural of a noun."""
    head, of, rest = noun.partition(" ")
    if noun.endswith("in flight"):
        return f"{head}s{of}{rest}"
    if noun.endswith("y"):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith("ch") else f"{noun}s"


def count(value: float) -> str:
    """1,000 or 41.67; below 0.01 the first digit."""
    if float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.2f}" if abs(value) >= 0.01 else f"{value:.1g}"


def duration(ns: float) -> str:
    """0.428 s, 12 min 5 s, 3.2 h, 4.1 d; below a millisecond in ns."""
    if ns < 0:
        return "-" + duration(-ns)
    if 0 < ns < 10**6:
        return f"{int(ns):,} ns"
    seconds = ns / NS_PER_S
    if seconds < 600:
        return f"{seconds:.3f}".rstrip("0").rstrip(".") + " s"
    if seconds < 7200:
        rest = f" {int(seconds) % 60} s" if int(seconds) % 60 else ""
        return f"{int(seconds) // 60} min{rest}"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:,.1f} d"


def percent(share: float) -> str:
    """3 %, 0.4 %, 156 %; a share above 0 that rounds to 0 is less than 0.1 %."""
    value = 100 * share
    if 0 < value < 0.05:
        return "less than 0.1 %"
    few = 0 < abs(value) < 10 and round(value, 1) != round(value)
    return f"{value:.1f} %" if few else f"{value:,.0f} %"


def moment(ms: float) -> datetime:
    """A time in UTC; a time beyond the calendar is the end of it."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.max.replace(tzinfo=UTC)


def clock(ms: float) -> str:
    """14:03:07.120, in UTC."""
    return moment(ms).strftime("%H:%M:%S.%f")[:-3]


def day(ms: float) -> str:
    """2026-01-05, in UTC."""
    return moment(ms).strftime("%Y-%m-%d")


UNITS: dict[str, Callable[[Any], str]] = {
    "n": count,
    "pct": percent,
    "clock": clock,
    "ns": duration,
    "day": lambda ms: instant_of(int(ms)),
    "ms": lambda ms: duration(ms * 10**6),
    "s": lambda s: duration(s * NS_PER_S),
}
"""The format of a number, by unit; times are ms since the epoch, shares are of 1."""
