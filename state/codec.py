"""State of a shard as bytes: a named, versioned set of plain arrays.

Layout: 4 bytes magic, 4 bytes header length, JSON header, one compressed block. The header names
the job, its state version and every array with its fields, so that a reader can refuse what it
does not know and show what it does. The block holds the fields column by column, which is what
makes it compress.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

Array = np.ndarray
MAGIC = b"WEIR"
COMPRESSION = "lz4"


class StateFormatError(Exception):
    """State bytes that this version of the job cannot read."""


def encode(job: str, version: int, arrays: Mapping[str, Array]) -> bytes:
    """Write one-dimensional or structured arrays under their names."""
    directory = []
    blocks: list[bytes] = []
    for name, array in arrays.items():
        fields = array.dtype.names
        columns = [("", array)] if fields is None else [(f, array[f]) for f in fields]
        directory.append(
            {
                "name": name,
                "length": len(array),
                "fields": [[field, column.dtype.str, list(column.shape[1:])]
                           for field, column in columns],
            }
        )
        blocks.extend(np.ascontiguousarray(column).tobytes() for _, column in columns)
    body = b"".join(blocks)
    packed = pa.compress(body, codec=COMPRESSION, asbytes=True) if body else b""
    header = json.dumps(
        {"job": job, "version": version, "bytes": len(body), "arrays": directory},
        separators=(",", ":"),
    ).encode()
    return MAGIC + struct.pack("<I", len(header)) + header + packed


def decode(job: str, version: int, data: bytes) -> dict[str, Array]:
    """Read what `encode` wrote; arrays are copies that may be written to.

    Raises StateFormatError for other bytes, another job or a version this code does not know.
    """
    header = describe(data)
    if header["job"] != job:
        raise StateFormatError(f"state of job {header['job']}, expected {job}")
    if header["version"] != version:
        raise StateFormatError(
            f"state of {job} has version {header['version']}, this release reads {version}"
        )
    start = 8 + struct.unpack_from("<I", data, 4)[0]
    size = header["bytes"]
    body = (
        pa.decompress(data[start:], decompressed_size=size, codec=COMPRESSION, asbytes=True)
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


def describe(data: bytes) -> dict[str, Any]:
    """Job, version and arrays of state bytes, without decoding them."""
    if data[:4] != MAGIC:
        raise StateFormatError("not a state of Weir: magic bytes are missing")
    length = struct.unpack_from("<I", data, 4)[0]
    header: dict[str, Any] = json.loads(data[8 : 8 + length])
    return header
