"""Records of one shard as columns of integers; names are integers of the shard's `Names`.

All columns of a set of records are rows of one int64 array, so that picking and joining records is
one operation, whatever they carry. Null is NULL in numeric columns and NONE in columns of names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from state.engine.blobs import SOURCE_COLUMNS, Blob, places
from state.engine.kernel import NULL, Int
from state.engine.names import Names
from state.events import KINDS

__all__ = [
    "FLAGS",
    "NULL",
    "SHIPPED",
    "SOURCE_COLUMNS",
    "Array",
    "Records",
    "after",
    "among",
    "concat",
    "empty",
    "length",
    "read_blobs",
    "take",
]
Array = np.ndarray
FLAGS = ("has_seq", "home", "held")
"""`home`: its first bit is 0 on the copies of a record that other shards report, its second STILL;
`held`: 1 on a record that looks too late by one clock and not by the other, until the cause is
known."""
HOME, STILL = np.int64(1), np.int64(2)
"""Bits of `home`. STILL: the record moves no clock, since its own may be wrong."""
SHIPPED = (*SOURCE_COLUMNS, "has_seq", "home", "ingest_ms")
"""What every blob carries beside the columns of its job."""


@lru_cache(maxsize=256)
def _index(columns: tuple[str, ...]) -> dict[str, int]:
    return {name: i for i, name in enumerate(columns)}


@lru_cache(maxsize=64)
def _places(columns: tuple[str, ...]) -> Array:
    return places((*columns, *SHIPPED))


class Records(MutableMapping[str, Array]):
    """Columns by name; `data` has them as rows (column, record; int64)."""

    __slots__ = ("_at", "columns", "data", "room")

    def __init__(self, columns: tuple[str, ...], data: Array, room: Array | None = None) -> None:
        """`room`: an array that ends with `data` and is free before it; see `after`."""
        self.columns, self.data, self.room = columns, data, room
        self._at = _index(columns)

    @classmethod
    def of(cls, columns: Mapping[str, Array]) -> Records:
        """Columns that lie apart."""
        if isinstance(columns, Records):
            return columns
        data = np.empty((len(columns), len(next(iter(columns.values())))), np.int64)
        for row, column in zip(data, columns.values(), strict=True):
            row[:] = column
        return cls(tuple(columns), data)

    def __getitem__(self, name: str) -> Array:
        found: Array = self.data[self._at[name]]
        return found

    def __setitem__(self, name: str, values: Array) -> None:
        if name not in self._at:
            self.columns = (*self.columns, name)
            self._at = _index(self.columns)
            self.data = np.concatenate([self.data, np.empty((1, self.data.shape[1]), np.int64)])
            self.room = None
        self.data[self._at[name]] = values

    def __delitem__(self, name: str) -> None:
        at = self._at[name]
        last = at == len(self.columns) - 1
        self.data = self.data[:-1] if last else np.delete(self.data, at, 0)
        self.room = None
        self.columns = tuple(c for c in self.columns if c != name)
        self._at = _index(self.columns)

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        """How many columns there are; see `length`."""
        return len(self.columns)

    def __contains__(self, name: object) -> bool:
        return name in self._at


def read_blobs(
    blobs: Sequence[bytes],
    names: Names,
    columns: tuple[str, ...],
    payloads: list[pa.Array] | None = None,
    more: tuple[str, ...] = (),
    room: int = 0,
) -> Records:
    """The records of blobs with their names interned; `event_type` is the position of its kind.

    `payloads` takes the payloads of each blob (null where a record has none); `more` are columns
    that are 0 for now; `room` is for how many records there is space before these, see `after`.
    """
    parts = [Blob(blob) for blob in blobs]
    every = (*columns, *SHIPPED, "held", *more)
    data = np.empty((len(every), room + sum(part.length for part in parts)), np.int64)
    data[every.index("held") :, room:] = 0
    where, at, first = _places(columns), room, 0
    ids, counts = _interned([part.names() for part in parts], names)
    for part, count in zip(parts, counts, strict=True):
        part.read(where, ids[first : first + count], data, at)
        at += part.length
        first += count
        if payloads is not None:
            payloads.append(part.payload())
    return Records(every, data[:, room:], data) if room else Records(every, data)


def _interned(parts: Sequence[tuple[Array, Array]], names: Names) -> tuple[Array, list[int]]:
    """Integers of the names of blobs, and the number of names of each."""
    counts = [len(offsets) - 1 for _, offsets in parts]
    if len(parts) == 1:
        return names.intern_utf8(*parts[0]), counts
    lengths = [np.zeros(1, np.int64), *(np.diff(offsets) for _, offsets in parts)]
    data = np.concatenate([np.zeros(0, np.uint8), *(data for data, _ in parts)])
    return names.intern_utf8(data, np.cumsum(np.concatenate(lengths))), counts


def after(first: Records, more: Records) -> Records:
    """Some records and then others; the others are not copied where they were read with room for
    the first, and both are then the same memory."""
    known = length(first)
    if not known:
        return more
    if more.room is None or more.room.shape[1] != known + length(more):
        return concat([first, more])
    more.room[:, :known] = first.data if first.columns == more.columns else _like(more, first)
    return Records(more.columns, more.room)


def concat(parts: Sequence[Mapping[str, Array]]) -> Records:
    """Rows of several sets of records, one after the other."""
    first = Records.of(parts[0])
    if len(parts) == 1:
        return first
    others = [Records.of(part) for part in parts[1:]]
    return Records(
        first.columns,
        np.concatenate(
            [
                first.data,
                *(o.data if o.columns == first.columns else _like(first, o) for o in others),
            ],
            axis=1,
        ),
    )


def _like(first: Records, other: Records) -> Array:
    """The rows of other records in the order of the first's columns."""
    return np.stack([other[name] for name in first.columns])


def take(records: Mapping[str, Array], rows: Array) -> Records:
    """The rows at these positions (or where a mask holds), in this order.

    A stretch of neighbours is a view: the columns of both are then the same memory.
    """
    every = Records.of(records)
    if rows.dtype == np.bool_:
        rows = np.flatnonzero(rows)
    n = len(rows)
    if n and rows[-1] - rows[0] == n - 1 and (n < 3 or bool((np.diff(rows) == 1).all())):
        return Records(every.columns, every.data[:, rows[0] : rows[-1] + 1])
    return Records(every.columns, every.data.take(rows, axis=1))


def length(records: Mapping[str, Array]) -> int:
    """Number of rows."""
    return records.data.shape[1] if isinstance(records, Records) else len(records["cluster"])


def empty(columns: tuple[str, ...]) -> Records:
    """No rows."""
    every = (*columns, *SHIPPED, "held")
    return Records(every, np.empty((len(every), 0), np.int64))


def among(*kinds: Int) -> Array:
    """By kind of record whether it is one of these."""
    return np.isin(np.arange(len(KINDS)), kinds)
