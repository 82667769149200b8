"""Positions in a Pulsar partition, and how far a trigger goes in it: without a broker."""

from __future__ import annotations

from typing import NamedTuple

INDEX_BITS = 20
"""Of a record's offset, for its place in its entry: more records than a batch can have."""
ENTRY_BITS = 63 - INDEX_BITS


class Position(NamedTuple):
    """An entry, all of it, and where known the index of its last message (-1: not a batch)."""

    ledger: int
    entry: int
    last: int | None = None

    @property
    def place(self) -> tuple[int, int]:
        """What positions are compared by."""
        return self.ledger, self.entry

    @classmethod
    def of(cls, text: str) -> Position:
        """The position that `str` has written."""
        ledger, entry, *last = (int(part) for part in text.split(":"))
        return cls(ledger, entry, *last)

    def __str__(self) -> str:
        return ":".join(str(part) for part in self if part is not None)


START = Position(-1, -1)
"""Before the first entry of a partition."""


def offset(entry: int, index: int) -> int:
    """`source_offset` of a record: its entry, and its index in the entry (-1: it is alone)."""
    index = max(index, 0)
    if entry >> ENTRY_BITS or index >> INDEX_BITS:
        raise ValueError(f"entry {entry}, message {index}: beyond what an offset can hold")
    return entry << INDEX_BITS | index


def bounded(begin: Position, last: Position, entries: int) -> Position:
    """Where a trigger of so many entries ends that begins after `begin`, in the ledger of it.

    Entries of a ledger are numbered without gaps. The end of one that is not the last is not
    known: a trigger may then end sooner.
    """
    end = Position(begin.ledger, begin.entry + entries)
    return last if end.place >= last.place else end


def entries_of_trigger(
    max_records: int, max_bytes: int, records_per_entry: float, bytes_per_entry: float,
    partitions: int,
) -> int:
    """Entries of each partition of so many with records that a trigger takes; at least one."""
    most = min(max_records / max(records_per_entry, 1), max_bytes / max(bytes_per_entry, 1))
    return max(int(most / max(partitions, 1)), 1)
