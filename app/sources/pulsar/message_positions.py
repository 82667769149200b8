"""Positions in a Pulsar partition, and the end of a trigger in it; needs no broker."""

from __future__ import annotations

from typing import NamedTuple

INDEX_BITS = 20
"""Bits of a record's offset for its index in its entry; a batch cannot have more records."""
ENTRY_BITS = 63 - INDEX_BITS


class Position(NamedTuple):
    """An entry, all of it, and where known the index of its last message (-1: not a batch)."""

    ledger: int
    entry: int
    last: int | None = None

    @property
    def place(self) -> tuple[int, int]:
        """Sort key of positions."""
        return self.ledger, self.entry

    @classmethod
    def of(cls, text: str) -> Position:
        """The position with this `str`."""
        ledger, entry, *last = (int(part) for part in text.split(":"))
        return cls(ledger, entry, *last)

    def __str__(self) -> str:
        return ":".join(str(part) for part in self if part is not None)


START = Position(-1, -1)
"""Before the first entry of a partition."""


def offset(entry: int, index: int) -> int:
    """`source_offset` of a record: its entry, and its index in the entry (-1 for a single message)."""
    index = max(index, 0)
    if entry >> ENTRY_BITS or index >> INDEX_BITS:
        raise ValueError(f"entry {entry}, message {index}: beyond what an offset can hold")
    return entry << INDEX_BITS | index


def bounded(begin: Position, last: Position, entries: int) -> Position:
    """The end of a trigger of so many entries that begins after `begin`, within the ledger of
    `begin`.

    Entries of a ledger are numbered without gaps. The end of a ledger that is not the last is not
    known, so a trigger may end sooner.
    """
    end = Position(begin.ledger, begin.entry + entries)
    return last if end.place >= last.place else end


def entries_of_trigger(
    max_records: int,
    max_bytes: int,
    records_per_entry: float,
    bytes_per_entry: float,
    partitions: int,
) -> int:
    """Entries that a trigger takes from each of `partitions` partitions with records; at least one."""
    most = min(max_records / max(records_per_entry, 1), max_bytes / max(bytes_per_entry, 1))
    return max(int(most / max(partitions, 1)), 1)
