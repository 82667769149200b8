"""Whether replayed tables are those of the live run, as multisets of rows.

Rows are compared by a hash of all their columns; only where two tables differ is a row looked up
for an example.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from app.read.relations import ANY_ORDER, Warehouse, connect
from app.terminal.counts import counted
from app.terminal.rows import plain
from app.whatif.replay.event_span import FIRST_MS, LAST_MS

if TYPE_CHECKING:
    import duckdb

    from app.engine.operators import Operator

Array = np.ndarray
ROW_TIME = "ts_wall_ms"


@dataclass(frozen=True)
class Difference:
    """A table whose rows differ."""

    table: str
    live: int
    replayed: int
    """Rows that only the one or the other has."""
    example: dict[str, Any]
    """One of them."""
    in_live: bool
    """Whether it is a live one."""

    def __str__(self) -> str:
        side = "live" if self.in_live else "replayed"
        row = ", ".join(f"{k}={v!r}" for k, v in self.example.items() if v is not None)
        return (
            f"{self.table}: {counted(self.live, 'row')} only live, {self.replayed:,} only "
            f"replayed; for example {side}: {row}"
        )


def differences(
    live: Warehouse,
    replayed: Warehouse,
    group: Mapping[str, Operator],
    begin_ms: int,
    end_ms: int,
    without_payload: bool,
) -> tuple[dict[str, int], list[Difference]]:
    """Rows compared by table, and the tables that differ, of event times from `begin_ms` to before
    `end_ms`. `without_payload`: the archive has no payloads, so they are not compared."""
    counts: dict[str, int] = {}
    found = []
    for name in (table for operator in group.values() for table in operator.tables):
        left_out = ("payload", "checksum") if without_payload else ()
        sides = [
            _Side(warehouse, name, begin_ms, end_ms, left_out) for warehouse in (live, replayed)
        ]
        counts[name] = sides[0].rows
        if sides[0].digest != sides[1].digest:
            found.append(_difference(name, *sides))
    return counts, found


class _Side:
    """A table of one of the two warehouses."""

    def __init__(
        self, warehouse: Warehouse, name: str, begin_ms: int, end_ms: int, left_out: Sequence[str]
    ) -> None:
        self._connection: duckdb.DuckDBPyConnection = connect(warehouse, name, config=ANY_ORDER)
        columns = [
            c
            for (c,) in self._connection.execute(
                f"SELECT column_name FROM (DESCRIBE {name})"
            ).fetchall()
            if c not in left_out
        ]
        packed = ", ".join(f'"{c}" := "{c}"' for c in sorted(columns))
        self._rows = f"SELECT hash(CAST(struct_pack({packed}) AS VARCHAR)) AS h, * FROM {name}"
        if (begin_ms, end_ms) != (FIRST_MS, LAST_MS):
            self._rows += f' WHERE "{ROW_TIME}" >= {begin_ms} AND "{ROW_TIME}" < {end_ms}'
        count, total, mixed = self._one(
            f"SELECT count(*), coalesce(sum(CAST(h AS HUGEINT)), 0), coalesce(bit_xor(h), 0) "
            f"FROM ({self._rows})"
        )
        self.rows, self.digest = int(count), (count, total, mixed)

    def _one(self, sql: str) -> Any:
        return self._connection.execute(sql).fetchone()

    def hashes(self) -> Array:
        """The hashes of all rows, sorted."""
        found = self._connection.execute(f"SELECT h FROM ({self._rows}) ORDER BY h").fetchnumpy()
        return np.asarray(found["h"], np.uint64)

    def row(self, hash_: int) -> dict[str, Any]:
        """A row by its hash."""
        found = self._connection.execute(f"SELECT * FROM ({self._rows}) WHERE h = {hash_} LIMIT 1")
        names = [column[0] for column in found.description or ()]
        values = found.fetchone()
        return {
            name: plain(value) for name, value in zip(names[1:], (values or ())[1:], strict=True)
        }


def _difference(name: str, live: _Side, replayed: _Side) -> Difference:
    ours, theirs = live.hashes(), replayed.hashes()
    only_live, only_replayed = _beyond(ours, theirs), _beyond(theirs, ours)
    in_live = bool(len(only_live))
    side, rest = (live, only_live) if in_live else (replayed, only_replayed)
    return Difference(name, len(only_live), len(only_replayed), side.row(int(rest[0])), in_live)


def _beyond(first: Array, second: Array) -> Array:
    """The values of the first multiset that the second has less often, as often as is missing."""
    values, counts = np.unique(first, return_counts=True)
    others, more = np.unique(second, return_counts=True)
    place = np.searchsorted(others, values)
    there = np.zeros(len(values), np.int64)
    inside = place < len(others)
    same = np.zeros(len(values), bool)
    same[inside] = others[place[inside]] == values[inside]
    there[same] = more[place[same]]
    return np.repeat(values, np.maximum(counts - there, 0))
