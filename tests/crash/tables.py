"""What two runs over the same input must agree on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.traces import every_row, identities

ALONE = {"alerts": None}
"""Of a run whose tables are compared, and whose alerts nobody looks at: their process takes two
seconds of CPU."""
HOSTILE = "hostile"
"""The cluster of records that come in no order and of which anything may be wrong."""


@dataclass(frozen=True)
class Tables:
    """The rows of every table, and the records that they come from."""

    rows: dict[str, list[tuple[Any, ...]]]
    records: list[tuple[str, int]]

    @classmethod
    def of(cls, warehouse: str) -> Tables:
        """The tables of a warehouse."""
        return cls(every_row(warehouse, HOSTILE), identities(warehouse))

    def differences(self, expected: Tables) -> list[str]:
        """What is not as expected, a line per table."""
        found = {
            name: _difference(self.rows.get(name, []), expected.rows.get(name, []))
            for name in sorted({*self.rows, *expected.rows})
        }
        found["records"] = _difference(self.records, expected.records)
        return [f"{name}: {text}" for name, text in found.items() if text]


def _difference(found: Sequence[Any], expected: Sequence[Any]) -> str:
    """How two multisets of rows differ; empty if they do not."""
    here, there = Counter(found), Counter(expected)
    lacking, more = there - here, here - there
    if not lacking and not more:
        return ""
    return (
        f"{lacking.total()} of {there.total()} rows are missing, {more.total()} are too many; "
        f"first {next(iter([*lacking, *more]))}"
    )
