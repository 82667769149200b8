"""Arrays with fields, moved as rows of words.

numpy copies a structure field by field, and looks at the fields of two layouts before it joins
arrays of them; as rows of 8-byte words they are plain memory. Every layout is a multiple of 8 bytes
long.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Array = np.ndarray


def words(array: Array) -> Array:
    """Elements as rows of words, which may be written to."""
    return array.view(np.int64).reshape(len(array), array.dtype.itemsize // 8)


def grown(array: Array, length: int) -> Array:
    """A copy with elements of zeros behind, so many in all."""
    found = np.zeros((length, *array.shape[1:]), array.dtype)
    if len(array):
        if array.dtype.names is None:
            found[: len(array)] = array
        else:
            words(found)[: len(array)] = words(np.ascontiguousarray(array))
    return found


def repeated(element: Array, count: int) -> Array:
    """So many copies of one element, given as an array of it."""
    found = np.empty(count, element.dtype)
    words(found)[:] = words(element)
    return found


def copied(array: Array) -> Array:
    """A copy."""
    return words(array).copy().reshape(-1).view(array.dtype)


def picked(array: Array, rows: Array) -> Array:
    """A copy of the elements at these positions, or where a mask holds."""
    if rows.dtype == np.bool_:
        rows = np.flatnonzero(rows)
    if not len(rows):
        return np.zeros(0, array.dtype)
    return words(np.ascontiguousarray(array)).take(rows, axis=0).reshape(-1).view(array.dtype)


def joined(arrays: Sequence[Array]) -> Array:
    """Arrays of one layout, one after the other; if all but one are empty, that one itself."""
    filled = [array for array in arrays if len(array)]
    if len(filled) < 2:
        return filled[0] if filled else arrays[0]
    return np.concatenate([words(array) for array in filled]).reshape(-1).view(arrays[0].dtype)
