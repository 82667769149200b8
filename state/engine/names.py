"""Names of one shard as dense integers, exact in spite of hash collisions.

A name is found by a 64-bit hash and then compared byte by byte, so two names with one hash stay
distinct. Integers are only comparable within one shard.
"""

from __future__ import annotations

import numba
import numpy as np
import pyarrow as pa

from udfs.arrow import bytes_of, offsets_of

Array = np.ndarray
NONE = -1
"""The integer of a null name."""
_WORD = np.uint64(8)
_SEARCHES = 4
"""Searches of all names that cost as much as a table of them."""
_MOST_BYTES = 2**31 - 1
"""Largest size of an Arrow array of strings (bytes)."""


@numba.njit(cache=True, nogil=True)
def _hash(data: Array, start: int, end: int, mask: np.uint64) -> np.uint64:
    h = np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(end - start)
    # unsigned positions: eight of these bytes are one load
    i, last = np.uint64(start), np.uint64(end)
    while i + _WORD <= last:
        word = np.uint64(0)
        for b in range(8):
            word |= np.uint64(data[i + np.uint64(b)]) << np.uint64(8 * b)
        h = (h ^ word) * np.uint64(0xD6E8FEB86659FD93)
        h ^= h >> np.uint64(32)
        i += _WORD
    while i < last:
        h = (h ^ np.uint64(data[i])) * np.uint64(0x100000001B3)
        i += np.uint64(1)
    h ^= h >> np.uint64(32)
    h *= np.uint64(0xD6E8FEB86659FD93)
    h ^= h >> np.uint64(32)
    return h & mask


@numba.njit(cache=True, nogil=True)
def _same(a: Array, a0: int, a1: int, b: Array, b0: int, b1: int) -> bool:
    if a1 - a0 != b1 - b0:
        return False
    for i in range(a1 - a0):
        if a[a0 + i] != b[b0 + i]:
            return False
    return True


@numba.njit(cache=True, nogil=True)
def _index(table: Array, data: Array, offsets: Array, count: int, mask: np.uint64) -> None:
    table[:] = -1
    slots = np.uint64(len(table) - 1)
    for i in range(count):
        at = _hash(data, offsets[i], offsets[i + 1], mask) & slots
        while table[at] >= 0:
            at = (at + np.uint64(1)) & slots
        table[at] = i


@numba.njit(cache=True, nogil=True)
def _slot(
    table: Array, data: Array, offsets: Array, other: Array, start: int, end: int, mask: np.uint64
) -> np.uint64:
    """Where a table of names has the name that other bytes are, or the free slot for it."""
    slots = np.uint64(len(table) - 1)
    at = _hash(other, start, end, mask) & slots
    while table[at] >= 0:
        i = table[at]
        if _same(data, offsets[i], offsets[i + 1], other, start, end):
            break
        at = (at + np.uint64(1)) & slots
    return at


@numba.njit(cache=True, nogil=True)
def _append(data: Array, offsets: Array, count: int, other: Array, start: int, end: int) -> None:
    """Put a name behind `count` others."""
    offset = offsets[count]
    for b in range(end - start):
        data[offset + b] = other[start + b]
    offsets[count + 1] = offset + end - start


@numba.njit(cache=True, nogil=True)
def _intern(
    table: Array,
    data: Array,
    offsets: Array,
    count: int,
    new_data: Array,
    new_offsets: Array,
    ids: Array,
    mask: np.uint64,
) -> int:
    for i in range(len(ids)):
        start, end = new_offsets[i], new_offsets[i + 1]
        at = _slot(table, data, offsets, new_data, start, end, mask)
        if table[at] < 0:
            _append(data, offsets, count, new_data, start, end)
            table[at] = count
            count += 1
        ids[i] = table[at]
    return count


@numba.njit(cache=True, nogil=True)
def _search(
    table: Array,
    data: Array,
    offsets: Array,
    count: int,
    new_data: Array,
    new_offsets: Array,
    ids: Array,
    mask: np.uint64,
) -> int:
    """As `_intern`, without a table of all names: the new ones are put into one (int32, all -1),
    then the others are looked up in it, one after the other.
    """
    slots = np.uint64(len(table) - 1)
    first = np.empty(len(ids), np.int64)
    missing = np.int64(0)
    for i in range(len(ids)):
        start, end = new_offsets[i], new_offsets[i + 1]
        at = _slot(table, new_data, new_offsets, new_data, start, end, mask)
        if table[at] < 0:
            table[at] = i
            missing += 1
        first[i], ids[i] = table[at], NONE
    for k in range(count):
        if missing == 0:
            break
        # inline, since most names end at their hash: by _slot it takes four times as long
        start, end = offsets[k], offsets[k + 1]
        at = _hash(data, start, end, mask) & slots
        while table[at] >= 0:
            j = table[at]
            if _same(new_data, new_offsets[j], new_offsets[j + 1], data, start, end):
                ids[j] = k
                missing -= 1
                break
            at = (at + np.uint64(1)) & slots
    for i in range(len(ids)):
        if first[i] < i:
            ids[i] = ids[first[i]]
        elif ids[i] == NONE:
            _append(data, offsets, count, new_data, new_offsets[i], new_offsets[i + 1])
            ids[i] = count
            count += 1
    return count


@numba.njit(cache=True, nogil=True)
def _gather(data: Array, offsets: Array, picked: Array, found: Array) -> None:
    """Bytes of the picked names, one after the other."""
    at = 0
    for name in picked:
        for b in range(offsets[name], offsets[name + 1]):
            found[at] = data[b]
            at += 1


class Names:
    """A growing set of strings; `intern` gives each its integer."""

    def __init__(
        self,
        data: Array | None = None,
        lengths: Array | None = None,
        mask: int = 0xFFFFFFFFFFFFFFFF,
    ) -> None:
        """Start from stored UTF-8 bytes and lengths; `mask` weakens the hash in tests."""
        self._data = np.zeros(0, np.uint8) if data is None else data
        count = 0 if lengths is None else len(lengths)
        self._offsets = np.zeros(count + 1, np.int64)
        if lengths is not None:
            np.cumsum(lengths, out=self._offsets[1:])
        self._count = count
        self._mask = np.uint64(mask)
        self._table = np.full(0, -1, np.int64)
        self._searches = 0

    def __len__(self) -> int:
        return self._count

    def intern(self, values: pa.StringArray) -> Array:
        """Integers (int64) of the values, new ones appended in order; null gives NONE."""
        if values.null_count:
            ids = np.full(len(values), NONE, np.int64)
            known = values.is_valid().to_numpy(zero_copy_only=False)
            ids[known] = self.intern(values.drop_null())
            return ids
        if not len(values):
            return np.empty(0, np.int64)
        return self.intern_utf8(bytes_of(values), offsets_of(values).astype(np.int64))

    def intern_utf8(self, data: Array, offsets: Array) -> Array:
        """Integers (int64) of consecutive names; `offsets` (int64) has the start of each and the
        end.

        The first calls search the names that were stored; only more of them pay for a table.
        """
        ids = np.empty(len(offsets) - 1, np.int64)
        if not len(ids):
            return ids
        self._reserve(len(ids), int(offsets[-1] - offsets[0]))
        if len(self._table) or self._searches == _SEARCHES or len(ids) >= self._count:
            self._index(len(ids))
            table, interned = self._table, _intern
        else:
            self._searches += 1
            table, interned = np.full(_slots(len(ids)), -1, np.int32), _search
        self._count = interned(
            table, self._data, self._offsets, self._count, data, offsets, ids, self._mask
        )
        return ids

    def intern_one(self, value: str) -> int:
        """Integer of one name."""
        data = np.frombuffer(value.encode(), np.uint8)
        return int(self.intern_utf8(data, np.array([0, len(data)], np.int64))[0])

    def get(self, name: int) -> str:
        """The name of an integer."""
        start, end = self._offsets[name], self._offsets[name + 1]
        return self._data[start:end].tobytes().decode()

    def texts(self, ids: Array) -> list[str]:
        """Names of an array of integers, none of them NONE."""
        data = self._data[: int(self._offsets[self._count])].tobytes()
        starts, ends = self._offsets[ids].tolist(), self._offsets[ids + 1].tolist()
        return [data[start:end].decode() for start, end in zip(starts, ends, strict=True)]

    def strings(self) -> pa.StringArray | pa.LargeStringArray:
        """All names as one Arrow array, position = integer."""
        used = int(self._offsets[self._count])
        if used <= _MOST_BYTES:
            return pa.StringArray.from_buffers(
                self._count,
                pa.py_buffer(self._offsets[: self._count + 1].astype(np.int32)),
                pa.py_buffer(self._data[:used]),
            )
        return pa.LargeStringArray.from_buffers(
            self._count,
            pa.py_buffer(self._offsets[: self._count + 1]),
            pa.py_buffer(self._data[:used]),
        )

    def lookup(self, ids: Array) -> pa.StringArray:
        """Names of an array of integers; NONE gives null."""
        picked = pa.array(ids, mask=ids < 0) if len(ids) else pa.array([], pa.int64())
        found = self.strings().take(picked)
        return found if found.type == pa.string() else found.cast(pa.string())

    def utf8(self) -> tuple[Array, Array]:
        """UTF-8 bytes, and offsets of the names (one more than names)."""
        return self._data, self._offsets[: self._count + 1]

    def arrays(self) -> tuple[Array, Array]:
        """UTF-8 bytes and lengths, in the form of the constructor's arguments."""
        used = int(self._offsets[self._count])
        offsets = self._offsets
        return self._data[:used], offsets[1 : self._count + 1] - offsets[: self._count]

    def compact(self, keep: Array) -> tuple[Names, Array]:
        """A set with only the names for which `keep` (bool by integer) is true, and a map from old
        to new integers.
        """
        renumber = np.full(self._count + 1, NONE, np.int64)
        kept = np.flatnonzero(keep)
        renumber[kept] = np.arange(len(kept))
        offsets = self._offsets
        lengths = offsets[kept + 1] - offsets[kept]
        data = np.empty(int(lengths.sum()), np.uint8)
        _gather(self._data, offsets, kept, data)
        return Names(data, lengths, int(self._mask)), renumber

    def _reserve(self, count: int, size: int) -> None:
        if self._count + count + 1 > len(self._offsets):
            room = np.zeros(2 * (self._count + count) + 16, np.int64)
            room[: self._count + 1] = self._offsets[: self._count + 1]
            self._offsets = room
        used = int(self._offsets[self._count])
        if used + size > len(self._data) or not self._data.flags.writeable:
            grown = np.zeros(2 * (used + size) + 64, np.uint8)
            grown[:used] = self._data[:used]
            self._data = grown

    def _index(self, count: int) -> None:
        """Make a table of all names, with room for more."""
        if 2 * (self._count + count) >= len(self._table):
            self._table = np.empty(_slots(self._count + count), np.int64)
            _index(self._table, self._data, self._offsets, self._count, self._mask)


def _slots(count: int) -> int:
    """Length of a table of names, a power of two of which they take a half at most."""
    slots = 64
    while slots < 4 * count:
        slots *= 2
    return slots
