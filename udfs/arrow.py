"""The buffers of Arrow string and binary arrays as numpy arrays, without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

Array = np.ndarray
_NONE = np.zeros(0, np.int64)
_NO_BITS = np.zeros(0, np.uint8)


def offsets_of(array: Any) -> Array:
    """Offsets of a string or binary array (length + 1; 32 or 64 bits by its type)."""
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    buffer = array.buffers()[1]
    if buffer is None or buffer.size == 0:
        return np.zeros(1, np.int64 if large else np.int32)
    offsets = np.frombuffer(buffer, np.int64 if large else np.int32)
    return offsets[array.offset : array.offset + len(array) + 1]


def bytes_of(array: Any) -> Array:
    """All bytes behind a string or binary array (uint8); `offsets_of` point into them."""
    buffer = array.buffers()[2]
    return np.frombuffer(buffer, np.uint8) if buffer is not None else np.zeros(0, np.uint8)


def plain(array: Any) -> Any:
    """One string or binary array with offsets: chunks joined, dictionaries and views resolved."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    kind = array.type
    if pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
        kind = array.type
    if kind == pa.string_view():
        return array.cast(pa.large_string())
    if kind == pa.binary_view():
        return array.cast(pa.large_binary())
    if pa.types.is_null(kind):
        return array.cast(pa.string())
    return array


def integers(array: Any, null: int | np.int64) -> Array:
    """Whole numbers and booleans of an array as int64, `null` where there is none.

    Arrow's own cast and fill_null cost more than a small array is worth.
    """
    found = values_of(array)
    wide = found if found.dtype == np.int64 else found.astype(np.int64)
    if not array.null_count:
        return wide
    return np.where(_bits(array.buffers()[0], array.offset, array.offset + len(array)), wide, null)


def values_of(array: Any) -> Array:
    """Whole numbers or booleans of an array in their own type; any value where there is none."""
    start, end = array.offset, array.offset + len(array)
    values = array.buffers()[1]
    if not end:
        return _NONE
    if pa.types.is_boolean(array.type):
        return _bits(values, start, end)
    return np.frombuffer(values, array.type.to_pandas_dtype(), end)[start:]


def validity_of(array: Any) -> Array:
    """The bits of an array (uint8) from its `offset` on: 1 where there is a value. Empty where no
    element is null."""
    if not array.null_count:
        return _NO_BITS
    return np.frombuffer(array.buffers()[0], np.uint8)


def _bits(buffer: Any, start: int, end: int) -> Array:
    packed = np.frombuffer(buffer, np.uint8)
    return np.unpackbits(packed, count=end, bitorder="little")[start:].view(np.bool_)


def null_mask(array: Any) -> Array:
    """Which elements of an array are null (bool)."""
    if array.null_count == 0:
        return np.zeros(len(array), np.bool_)
    return np.asarray(array.is_null().to_numpy(zero_copy_only=False), np.bool_)
