"""Columns of 64-bit words in as few bytes as their values need.

A column is stored as the distances of its values from one below the least of them, 0 for NULL, in
as many bytes as the largest distance needs; equal values take none. A distance of 3, 5 or 6 bytes
is stored in two parts, each of a width that memory has. Arrays with fields are columns that lie row
by row.

    values      NULL  1004  1001       base 1000, 1 byte: 0 4 1
    values      7     7     7          base 7, no bytes
"""

from __future__ import annotations

import numba
import numpy as np

from state.engine.kernel import NULL, Int

Array = np.ndarray
_MOST = np.int64(2**63 - 1)
_NOTHING = np.uint64(0)
_ROWS = 256
"""Rows at a time: a block of an array is still in the cache when its next column is stored."""


@numba.njit(cache=True, nogil=True)
def pack(words: Array, shapes: Array, masks: Array, bases: Array, widths: Array, out: Array) -> Int:
    """Store arrays, given one after the other as words, in `out` (uint8; zeros, which may be as
    large as the words and 8 bytes a column); returns the bytes in use.

    `shapes` (array, 2) has rows and words of a row; by column, `masks` has the bits that count, and
    `bases` and `widths` take what `unpack` needs.
    """
    at, word, column = np.int64(0), np.int64(0), np.int64(0)
    starts = np.empty(len(masks), np.int64)
    for a in range(len(shapes)):
        rows, count = shapes[a, 0], shapes[a, 1]
        if rows:
            array = words[word : word + rows * count]
            _measure(array, rows, count, column, masks, bases, widths)
            for c in range(column, column + count):
                starts[c] = at
                at += _size(widths[c], rows)
            for first in range(0, rows, _ROWS):
                last = min(first + _ROWS, rows)
                for c in range(count):
                    width = widths[column + c]
                    if width:
                        values = array[first * count + c : last * count : count]
                        mask, base, start = masks[column + c], bases[column + c], starts[column + c]
                        low = _low(width)
                        _put(values, mask, base, 0, low, out, start, first)
                        if low < width:
                            start += _padded(low * rows)
                            _put(values, mask, base, 8 * low, width - low, out, start, first)
        word += rows * count
        column += count
    return at


@numba.njit(cache=True, nogil=True)
def unpack(data: Array, shapes: Array, bases: Array, widths: Array, words: Array) -> None:
    """The inverse of `pack`."""
    at, word, column = np.int64(0), np.int64(0), np.int64(0)
    starts = np.empty(len(bases), np.int64)
    for a in range(len(shapes)):
        rows, count = shapes[a, 0], shapes[a, 1]
        if rows:
            array = words[word : word + rows * count]
            for c in range(column, column + count):
                starts[c] = at
                at += _size(widths[c], rows)
            for first in range(0, rows, _ROWS):
                last = min(first + _ROWS, rows)
                for c in range(count):
                    width = widths[column + c]
                    values = array[first * count + c : last * count : count]
                    base, start = bases[column + c], starts[column + c]
                    if width == 0:
                        for i in range(len(values)):
                            values[i] = base
                        continue
                    low = _low(width)
                    _get(values, 0, low, data, start, first)
                    if low < width:
                        start += _padded(low * rows)
                        _get(values, 8 * low, width - low, data, start, first)
                    for i in range(len(values)):
                        distance = values[i]
                        values[i] = NULL if distance == 0 else base + distance
        word += rows * count
        column += count


@numba.njit(cache=True, nogil=True)
def _padded(size: int) -> int:
    return (size + 7) & ~7


@numba.njit(cache=True, nogil=True)
def _low(width: int) -> int:
    """Bytes of the first part of a distance."""
    if width == 3:
        return 2
    return 4 if 4 < width < 8 else width


@numba.njit(cache=True, nogil=True)
def _size(width: int, rows: int) -> int:
    low = _low(width)
    return _padded(low * rows) + _padded((width - low) * rows)


@numba.njit(cache=True, nogil=True)
def _measure(
    array: Array, rows: int, count: int, column: int, masks: Array, bases: Array, widths: Array
) -> None:
    """Base and width of the columns of an array."""
    most = np.full(count, NULL)
    nulls = np.zeros(count, np.int64)
    below = bases[column : column + count]
    below[:] = _MOST
    if count == 1:
        # one less than NULL is the greatest of all: nulls do not count
        b, m, none = _MOST, NULL, np.int64(0)
        for i in range(rows):
            value = array[i] & masks[column]
            b, m = min(b, value - 1), max(m, value)
            none += value == NULL
        below[0], most[0], nulls[0] = b, m, none
    else:
        mask = masks[column : column + count]
        for r in range(rows):
            row = array[r * count : (r + 1) * count]
            for c in range(count):
                value = row[c] & mask[c]
                below[c] = min(below[c], value - 1)
                most[c] = max(most[c], value)
                nulls[c] += value == NULL
    for c in range(count):
        if most[c] == NULL or (not nulls[c] and below[c] + 1 == most[c]):
            below[c], widths[column + c] = most[c], 0
        else:
            widths[column + c] = _width(np.uint64(most[c]) - np.uint64(below[c]))


@numba.njit(cache=True, nogil=True)
def _width(distance: np.uint64) -> int:
    width = 1
    while width < 8 and distance >> np.uint64(8 * width) != np.uint64(0):
        width += 1
    return 8 if width == 7 else width


@numba.njit(cache=True, nogil=True)
def _put(
    values: Array, mask: int, base: int, shift: int, width: int, out: Array, start: int, first: int
) -> None:
    """Store some bytes of the distances of neighbouring values, the first of which has a number."""
    n, by, low = len(values), np.uint64(shift), np.uint64(base)
    begin = start + first * width
    if width == 1:
        for i in range(n):
            value = values[i] & mask
            out[begin + i] = _NOTHING if value == NULL else (np.uint64(value) - low) >> by
    elif width == 2:
        two = out[begin : begin + 2 * n].view(np.uint16)
        for i in range(n):
            value = values[i] & mask
            two[i] = _NOTHING if value == NULL else (np.uint64(value) - low) >> by
    elif width == 4:
        four = out[begin : begin + 4 * n].view(np.uint32)
        for i in range(n):
            value = values[i] & mask
            four[i] = _NOTHING if value == NULL else (np.uint64(value) - low) >> by
    else:
        eight = out[begin : begin + 8 * n].view(np.uint64)
        for i in range(n):
            value = values[i] & mask
            eight[i] = _NOTHING if value == NULL else np.uint64(value) - low


@numba.njit(cache=True, nogil=True)
def _get(values: Array, shift: int, width: int, data: Array, start: int, first: int) -> None:
    """Add some bytes of distances to values, or set them with the lowest bytes."""
    n, begin = len(values), start + first * width
    if shift:
        if width == 1:
            for i in range(n):
                values[i] |= np.int64(data[begin + i]) << shift
        else:
            two = data[begin : begin + 2 * n].view(np.uint16)
            for i in range(n):
                values[i] |= np.int64(two[i]) << shift
    elif width == 1:
        for i in range(n):
            values[i] = data[begin + i]
    elif width == 2:
        two = data[begin : begin + 2 * n].view(np.uint16)
        for i in range(n):
            values[i] = two[i]
    elif width == 4:
        four = data[begin : begin + 4 * n].view(np.uint32)
        for i in range(n):
            values[i] = four[i]
    else:
        eight = data[begin : begin + 8 * n].view(np.int64)
        for i in range(n):
            values[i] = eight[i]
