"""What the references of jobs on wall time share: the order of records, and how a key is played."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from tests.reference.order import KINDS, Record, nulls_first

Row = dict[str, Any]

SHARED = ("policy", "broker_started", "gap")
"""Kinds that hold for many keys; every other kind that a job reads has a key of its own."""
NS_PER_MS = 1_000_000


def wall_level(record: Record, places: Sequence[str], later: Sequence[str]) -> tuple[Any, ...]:
    """What orders a record: its wall time, columns that say where it stands, its kind, the rest."""
    # a policy without monotonic time stands before everything of its wall time
    floats = record["event_type"] == "policy" and record.get("ts_mono_ns") is None
    return (
        record["ts_wall_ms"],
        not floats,
        *[nulls_first(record.get(column)) for column in places],
        KINDS.index(record["event_type"]),
        *[nulls_first(record.get(column)) for column in later],
    )


class Key(ABC):
    """One key of a job: its clock, the records beside it, and its rows."""

    def __init__(self, cluster: str, tables: Sequence[str]) -> None:
        self.rows: dict[str, list[Row]] = {table: [] for table in tables}
        self._cluster = cluster
        self._last: Record | None = None
        self._next: Record | None = None
        self._now = 0
        self._from_record = False
        """Whether what is decided now is decided by the last record, and not by the clock."""

    @abstractmethod
    def advance(self, to: int, following: Record | None = None) -> None:
        """Do what is due by `to`; `following` is the next record of the key itself."""

    @abstractmethod
    def take(self, record: Record) -> Any:
        """A record at its time, to which the key has been advanced."""

    def _mono(self) -> int | None:
        assert self._last is not None
        mono: int | None = self._last.get("ts_mono_ns")
        if self._from_record or mono is None:
            return mono
        mono += (self._now - self._last["ts_wall_ms"]) * NS_PER_MS
        n = self._next
        if n is not None and n["broker"] == self._last["broker"]:
            following = n.get("ts_mono_ns")
            mono = mono if following is None else min(mono, following)
        return mono

    def _put(self, table: str, rule: str, columns: Row) -> None:
        assert self._last is not None
        rows = self.rows[table]
        again = rows and rows[-1]["ts_wall_ms"] == self._now
        rows.append(
            {
                "cluster": self._cluster,
                "broker": self._last["broker"],
                "ts_mono_ns": self._mono(),
                "ts_wall_ms": self._now,
                "rule": rule,
                "source_feed": self._last["source_feed"],
                "row_no": rows[-1]["row_no"] + 1 if again else 0,
                **columns,
            }
        )


AKey = TypeVar("AKey", bound=Key)


def play(key: AKey, records: Sequence[Record], until_ms: int | None = None) -> AKey:
    """Take the ordered records of one key, then move its clock to `until_ms`.

    What holds for many keys moves no clock: after the last record of the key itself it is taken
    only on the way to `until_ms`.
    """
    own = [i for i, r in enumerate(records) if r["event_type"] not in SHARED]
    for i, record in enumerate(records):
        if i > own[-1] and (until_ms is None or record["ts_wall_ms"] >= until_ms):
            break
        key.advance(record["ts_wall_ms"], next((records[j] for j in own if j >= i), None))
        key.take(record)
    if until_ms is not None:
        key.advance(until_ms)
    return key


def gathered(
    tables: Sequence[str], found: Iterable[Mapping[str, list[Row]]]
) -> dict[str, list[Row]]:
    """Rows of all keys by table."""
    rows: dict[str, list[Row]] = {table: [] for table in tables}
    for of_key in found:
        for table, some in of_key.items():
            rows[table].extend(some)
    return rows
