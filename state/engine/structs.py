"""Arrays with fields, copied as rows of words.

numpy copies a structure field by field, and compares the fields of two layouts before it joins
arrays. As rows of 8-byte words they are plain memory. The length of every layout is a multiple of 8
bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray


def record(fields: Sequence[tuple[Any, ...]]) -> np.dtype[Any]:
    """A layout of these fields. np.record: they are attributes in interpreted rules, too."""
    return np.dtype((np.record, np.dtype(list(fields), align=True)))


def layout(*fields: str | tuple[str, str]) -> np.dtype[Any]:
    """A layout of integers of 8 bytes, and of fields that have another type."""
    return record([(field, "<i8") if isinstance(field, str) else field for field in fields])


def words(array: Array) -> Array:
    """Elements as writable rows of words."""
    return array.view(np.int64).reshape(len(array), array.dtype.itemsize // 8)


def grown(array: Array, length: int) -> Array:
    """A copy with zero elements appended, of the given length."""
    found = np.zeros((length, *array.shape[1:]), array.dtype)
    if len(array):
        if array.dtype.names is None:
            found[: len(array)] = array
        else:
            words(found)[: len(array)] = words(np.ascontiguousarray(array))
    return found


def repeated(element: Array, count: int) -> Array:
    """Copies of one element, given as an array of it."""
    found = np.empty(count, element.dtype)
    if count:
        words(found)[:] = words(element)
    return found


def copied(array: Array) -> Array:
    """A copy."""
    return words(array).copy().reshape(-1).view(array.dtype)


def picked(array: Array, rows: Array) -> Array:
    """A copy of the elements at these positions, or under a mask."""
    if rows.dtype == np.bool_:
        rows = np.flatnonzero(rows)
    if not len(rows):
        return np.zeros(0, array.dtype)
    return words(np.ascontiguousarray(array)).take(rows, axis=0).reshape(-1).view(array.dtype)


def joined(arrays: Sequence[Array]) -> Array:
    """Arrays of one layout, one after the other; if only one is not empty, that array itself."""
    filled = [array for array in arrays if len(array)]
    if len(filled) < 2:
        return filled[0] if filled else arrays[0]
    return np.concatenate([words(array) for array in filled]).reshape(-1).view(arrays[0].dtype)
