"""Sentences as f-strings over rows, whose numbers are noted as they are written.

`f"{end.balance_msgs:n message} after {end.derived('paused_ns', ns):ns}"` writes a column of the quoted
row `end` and a number that is worked out from it, each by its unit, and notes both with their names:
a program reads them beside the text.
"""

from __future__ import annotations

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
    """A number of a sentence: of which row and column, or what is worked out from which row."""

    name: str
    value: float
    unit: str
    shown: str


@dataclass(frozen=True)
class Sentence:
    """One decision as text."""

    at_ms: int
    text: str
    rule: str
    rows: Mapping[str, Row]
    """The evidence by name; the first row is the decision."""
    numbers: Sequence[Number]
    order: tuple[Any, ...]
    """Order among the sentences of one millisecond."""

    @property
    def decision(self) -> Row:
        """The row that the sentence is about."""
        return next(iter(self.rows.values()))

    @property
    def source(self) -> str:
        """The rule, and the table and key of the row that the sentence is about."""
        row = self.decision
        key = " ".join(f"{name}={value}" for name, value in row.key.items())
        return f"{self.rule}; {row.table} {key or 'sums'}"


@dataclass(frozen=True)
class Value:
    """A value that a format writes: without a unit as text, else as a number, which is noted."""

    name: str
    value: Any
    numbers: list[Number]

    def __format__(self, unit: str) -> str:
        if self.value is None or not unit:
            return "unknown" if self.value is None else str(self.value)
        unit, _, noun = unit.partition(" ")
        shown = UNITS[unit](self.value)
        if noun:
            shown += f" {noun if shown == '1' else plural(noun)}"
        self.numbers.append(Number(self.name, self.value, unit, shown))
        return shown


class Quoted:
    """A row in the text of a sentence: `row[column]` decides, `row.column` is written."""

    def __init__(self, name: str, row: Row, numbers: list[Number]) -> None:
        self._name, self._row, self._numbers = name, row, numbers

    def __getitem__(self, column: str) -> Any:
        return self._row[column]

    def __getattr__(self, column: str) -> Value:
        return self.derived(column, self._row[column])

    def amounts(self, messages: str, size: str) -> str:
        """2 messages and 5,000 bytes: those of two columns that are known, or nothing."""
        columns = ((messages, "message"), (size, "byte"))
        return " and ".join(
            format(getattr(self, column), f"n {noun}")
            for column, noun in columns
            if self[column] is not None
        )

    def derived(self, name: str, value: float) -> Value:
        """A number that is worked out from this row and others of the sentence."""
        return Value(f"{self._name}.{name}", value, self._numbers)


@dataclass
class Draft:
    """A sentence that is being written: its rows by name, and the numbers of its text."""

    rows: dict[str, Row] = field(default_factory=dict)
    numbers: list[Number] = field(default_factory=list)

    def quote(self, name: str, row: Row) -> Quoted:
        """A row for the text; the first is the decision."""
        self.rows[name] = row
        return Quoted(name, row, self.numbers)

    def sentence(
        self, text: str, order: tuple[Any, ...], at_ms: int | None = None, rule: str | None = None
    ) -> Sentence:
        """The sentence; time and rule are those of the decision, if they are not given."""
        decision = next(iter(self.rows.values()))
        at_ms = decision["ts_wall_ms"] if at_ms is None else at_ms
        return Sentence(at_ms, f"{text}.", rule or decision["rule"], self.rows, self.numbers, order)


def tell(describe: Callable[[Quoted], str], name: str, row: Row, place: int) -> Sentence:
    """A sentence about one row; `place` is that among the sentences of one time and subject."""
    draft = Draft()
    return draft.sentence(describe(draft.quote(name, row)), (place, row["row_no"]))


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
