"""The bytes of states as earlier releases wrote them; a state is rewritten with its next batch.

`WEI2` has the header of today, and a body of plain arrays: their lengths, then each array, up to 32
rows of one row by row, more of them field by field. `WEIR` has lengths in the header and every
array field by field.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

Array = np.ndarray
BY_ROW, BY_FIELD = b"WEI2", b"WEIR"
SHORT = 32
"""Most rows of an array that `WEI2` stores row by row."""


def by_row(names: Sequence[str], types: Sequence[np.dtype[Any]], body: bytes) -> dict[str, Array]:
    """The arrays of a `WEI2` body."""
    lengths = np.frombuffer(body, np.int64, len(names)).tolist()
    offset = 8 * len(names)
    arrays: dict[str, Array] = {}
    for name, kind, length in zip(names, types, lengths, strict=True):
        if kind.names is None or length <= SHORT:
            arrays[name] = np.ndarray(length, kind, body, offset).copy()
            offset += length * kind.itemsize
            continue
        arrays[name] = np.zeros(length, kind)
        for field in kind.names:
            arrays[name][field] = np.ndarray(length, kind[field], body, offset)
            offset += length * kind[field].itemsize
    return arrays


def by_field(header: dict[str, Any], data: bytes, compression: str) -> dict[str, Array]:
    """The arrays of a `WEIR` state."""
    start, size = 8 + struct.unpack_from("<I", data, 4)[0], header["bytes"]
    body = (
        pa.decompress(data[start:], decompressed_size=size, codec=compression, asbytes=True)
        if size
        else b""
    )
    arrays: dict[str, Array] = {}
    offset = 0
    for entry in header["arrays"]:
        length = entry["length"]
        columns = []
        for field, dtype, shape in entry["fields"]:
            count = length * int(np.prod(shape, dtype=np.int64))
            column = np.frombuffer(body, dtype=dtype, count=count, offset=offset)
            offset += column.nbytes
            columns.append((field, column.reshape([length, *shape])))
        if len(columns) == 1 and columns[0][0] == "":
            arrays[entry["name"]] = columns[0][1].copy()
            continue
        layout = np.dtype([(f, c.dtype.str, c.shape[1:]) for f, c in columns], align=True)
        array = np.zeros(length, layout)
        for field, column in columns:
            array[field] = column
        arrays[entry["name"]] = array
    return arrays


def header_of(data: bytes) -> dict[str, Any]:
    """The header of a `WEIR` state."""
    length = struct.unpack_from("<I", data, 4)[0]
    header: dict[str, Any] = json.loads(data[8 : 8 + length])
    return header
