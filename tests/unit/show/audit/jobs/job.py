"""A job as the tests of its audit see it: rows that its core writes, and what can be amiss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from app.config.settings import Settings
from state.jobs import DECLARED

Row = dict[str, Any]
Rows = list[Row]
Edit = Callable[[Rows], Rows]

SET, RANGE = "expect_column_values_to_be_in_set", "expect_column_values_to_be_between"
UNIQUE = "expect_compound_columns_to_be_unique"


Damage = tuple[int | tuple[str, int], Row, list[str | tuple[str, str]]]
"""A row of a table by its place, or by its cluster and its place there; what is changed in it; the
expectations that then fail, those about columns with them."""


class Conflict(NamedTuple):
    """Tables that contradict each other, and what fails in those that are audited."""

    name: str
    edits: Mapping[str, Edit]
    failed: Mapping[str, Mapping[str, int]]
    """Unexpected rows by table and expectation."""


class Variety(NamedTuple):
    """Values that the rows of a table have: damage is damage of each of them."""

    table: str
    of: Callable[[Row], Any]
    values: set[Any]


@dataclass(frozen=True)
class Job:
    """A job with sound rows, and the damage that its audit names."""

    name: str
    tables: Sequence[str]
    rows_of: Callable[[str], Rows]
    keys: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The compound keys of each table that is audited alone."""
    variety: Sequence[Variety] = ()
    damage: Mapping[str, Sequence[Damage]] = field(default_factory=dict)
    sums: Sequence[Conflict] = ()
    """Rows of one table that contradict each other; they may break other expectations besides."""
    conflicts: Sequence[Conflict] = ()


def change(row: int, **columns: Any) -> Edit:
    """An edit of one row."""
    return lambda rows: [{**r, **columns} if r is rows[row] else r for r in rows]


def add(row: int, column: str, number: int = 1) -> Edit:
    """An edit that counts more in one row."""
    return lambda rows: change(row, **{column: rows[row][column] + number})(rows)


def lose(count: int) -> Edit:
    """An edit that drops the first rows."""
    return lambda rows: rows[count:]


def replace(rows: Rows) -> Edit:
    """An edit that puts other rows in the place of all."""
    return lambda _: rows


def written(
    job: str, decided: Callable[..., Mapping[str, Rows]], variants: Mapping[str, Mapping[str, Any]]
) -> Callable[[str], Rows]:
    """The rows of a table, as what a core has decided is written: for each cluster, in their order,
    those of its parameters."""

    @cache
    def every() -> dict[str, Rows]:
        rows: dict[str, Rows] = {}
        for cluster, params in variants.items():
            chosen = {k: v for k, v in params.items() if k in DECLARED[job].switches}
            switches = Settings.model_validate({job: chosen}).switches(job)
            about = {
                "job": job,
                "params_hash": "abc",
                "cluster": cluster,
                "switches": sorted(switches.items()),
            }
            for table, found in decided(**params).items():
                rows.setdefault(table, []).extend({**row, **about} for row in found)
        return rows

    return lambda table: [dict(row) for row in every()[table]]
