"""A ready question and its parameters: what the room of a job declares of questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.errors import UserError, did_you_mean
from app.plain_text import is_digits
from app.terminal.moments import moment_ms


@dataclass(frozen=True)
class Param:
    """A parameter of a question, with its default."""

    name: str
    meaning: str
    default: int | str
    allowed: tuple[str, ...] = ()
    """The allowed words; if empty, a number, or a time if `is_time`."""
    is_time: bool = False
    shown: str = ""
    """The default in words, if it depends on another parameter."""

    def read(self, text: str) -> int | str:
        """The value of a text; UserError for one that is not allowed."""
        where = f"--param {self.name}="
        if self.allowed:
            if text not in self.allowed:
                raise UserError(f"{where}{text}: allowed: {', '.join(self.allowed)}")
            return text
        if self.is_time:
            return moment_ms(text, f"{where}{text}")
        if not is_digits(text) or int(text) < 1:
            raise UserError(f"{where}{text}: is not a number of rows (allowed: 1 or more)")
        return int(text)

    @property
    def shown_default(self) -> str:
        """The default in words."""
        if self.shown:
            return self.shown
        if self.is_time:
            return "the beginning" if self.default == LEAST else "the end"
        return str(self.default)


LEAST, MOST = -(2**63), 2**63 - 1
ROWS = Param("rows", "maximum number of rows", 20)
SINCE = Param("since", "from this time on (ms since the epoch or ISO 8601)", LEAST, is_time=True)
UNTIL = Param("until", "before this time", MOST, is_time=True)
USUAL = (SINCE, UNTIL, ROWS)


@dataclass(frozen=True)
class FleetColumns:
    """Columns of a job in the question `fleet`, which has a row for each cluster."""

    names: tuple[str, ...]
    reads: tuple[str, ...]
    sql: str
    """A SELECT of `cluster` and these columns, a row for each cluster; `$since` and `$until`."""


@dataclass(frozen=True)
class Question:
    """A question: one sentence, the tables and views it reads, SQL with `$parameters`."""

    name: str
    meaning: str
    reads: tuple[str, ...]
    sql: str
    params: tuple[Param, ...] = USUAL
    needs: str = ""
    """Where a row comes from, if that is more than rows of what it reads: printed where there is
    none."""
    place: int = 0
    """Its place in lists of questions, before the order of the jobs."""
    usual: bool = False
    """Whether it is among those that are listed first."""
    first: tuple[str, ...] = ()
    """The columns that a printed answer has, without --wide; by default the first ones."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Units of columns whose names do not tell them, as in `app.terminal.amounts`, or the column that
    has the kind of quota whose unit it is."""
    by: Mapping[str, Question] = field(default_factory=dict)
    """The questions that it is by the values of its parameter `by`; the first one by default."""

    def asked(self, given: Mapping[str, str]) -> Question:
        """The question itself, or the one of the value of `by`."""
        if not self.by:
            return self
        chosen = Param("by", "", next(iter(self.by)), tuple(self.by))
        value = chosen.read(given["by"]) if "by" in given else chosen.default
        question = self.by[str(value)]
        return replace(question, name=self.name, params=(chosen, *question.params))

    def values(self, given: Mapping[str, str]) -> dict[str, Any]:
        """The value of every parameter of the statement, from the texts that are given."""
        known = {param.name: param for param in self.params}
        for name in given:
            if name not in known:
                hint = did_you_mean(name, list(known)) if known else "it has none"
                raise UserError(f"--param {name}: {self.name} has no such parameter ({hint})")
        return {
            name: param.read(given[name]) if name in given else param.default
            for name, param in known.items()
            if f"${name}" in self.sql
        }


def grouped(name: str, meaning: str, by: Mapping[str, Question], place: int = 0) -> Question:
    """One question for several that differ by what their rows are about."""
    first = next(iter(by.values()))
    what = "; ".join(f"{value}: {question.meaning[:-1]}" for value, question in by.items())
    params = {param.name: param for question in by.values() for param in question.params}
    return Question(
        name,
        meaning,
        tuple(dict.fromkeys(table for question in by.values() for table in question.reads)),
        first.sql,
        (Param("by", what, next(iter(by)), tuple(by)), *params.values()),
        first.needs,
        place,
        usual=True,
        by=by,
    )


def given(texts: Sequence[str]) -> dict[str, str]:
    """Parameters from the command line, `name=value` each."""
    found: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UserError(f"--param {text}: write name=value, for example --param rows=50")
        found[name.strip()] = value.strip()
    return found
