"""The state of a shard as bytes: a named, versioned set of plain arrays.

Layout: 4 bytes magic, 4 bytes header length, JSON header, 8 bytes length of the body, the
compressed body. The header names the job, its state version and every array with its fields, so
that a reader can refuse an unknown state and describe a known one. It has no lengths, so it is the
same for every shard of a job, and is written and parsed once. The body begins with the lengths of
the arrays. Long arrays are stored field by field, which compresses well; short ones row by row,
which is one copy. Bytes between fields are zero. Equal arrays have equal bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

Array = np.ndarray
MAGIC = b"WEI2"
BY_FIELD = b"WEIR"
"""Magic of earlier releases, with lengths in the header and every array field by field."""
COMPRESSION = "lz4"
SHORT = 32
"""Most rows of an array that is stored row by row."""


class StateFormatError(Exception):
    """State bytes that this version of the job cannot read."""


@dataclass(frozen=True)
class _Plan:
    """The contents of a header."""

    job: str
    version: int
    names: tuple[str, ...]
    types: tuple[np.dtype[Any], ...]
    """Element types as `decode` makes them: plain, or aligned structures."""


def encode(job: str, version: int, arrays: Mapping[str, Array]) -> bytes:
    """Write plain arrays, and structured ones of one dimension, under their names."""
    header, types, same = _header(job, version, arrays)
    blocks = [np.fromiter(map(len, arrays.values()), np.int64, len(arrays)).tobytes()]
    for array, wanted, is_wanted in zip(arrays.values(), types, same, strict=True):
        fields = wanted.names
        if fields is None:
            blocks.append(array.tobytes())
        elif len(array) <= SHORT:
            rows = array if is_wanted else array.astype(wanted)
            blocks.append(_without_padding(rows) if len(rows) else b"")
        else:
            blocks.extend(array[field].tobytes() for field in fields)
    body = b"".join(blocks)
    packed = pa.compress(body, codec=COMPRESSION, asbytes=True)
    return b"".join(
        (
            MAGIC,
            struct.pack("<I", len(header)),
            header,
            struct.pack("<Q", len(body)),
            packed,
        )
    )


def decode(job: str, version: int, data: bytes) -> dict[str, Array]:
    """Read what `encode` wrote; the arrays are writable copies.

    Raises StateFormatError for other bytes, another job or an unknown version.
    """
    if data[:4] == BY_FIELD:
        header = _by_field_header(data)
        _require(job, version, header["job"], header["version"])
        return _by_field(header, data)
    plan, body = _opened(data)
    _require(job, version, plan.job, plan.version)
    arrays: dict[str, Array] = {}
    lengths, offset = _lengths(plan, body)
    at, names = 0, plan.names
    while at < len(names):
        name, kind, length, begin = names[at], plan.types[at], lengths[at], at
        at += 1
        if kind.names is None or length <= SHORT:
            if kind.shape == () and kind.names is None:
                while at < len(names) and plan.types[at] is kind and lengths[at] == length:
                    at += 1
            size = (at - begin) * length * kind.itemsize
            if at - begin > 1:
                block = np.ndarray((at - begin, length), kind, body, offset).copy()
                arrays.update(zip(names[begin:at], block, strict=True))
            else:
                arrays[name] = np.ndarray(length, kind, body, offset).copy()
            offset += size
            continue
        array = np.zeros(length, kind)
        for field in kind.names:
            part = kind[field]
            array[field] = np.ndarray(length, part, body, offset)
            offset += length * part.itemsize
        arrays[name] = array
    return arrays


def describe(data: bytes) -> dict[str, Any]:
    """Job, version, size and arrays of state bytes."""
    if data[:4] == BY_FIELD:
        return _by_field_header(data)
    plan, body = _opened(data)
    lengths, offset = _lengths(plan, body)
    return {
        "job": plan.job,
        "version": plan.version,
        "bytes": len(body) - offset,
        "arrays": [
            {"name": name, "length": length, "fields": _fields(kind)}
            for name, kind, length in zip(plan.names, plan.types, lengths, strict=True)
        ],
    }


def _require(job: str, version: int, found: str, its_version: int) -> None:
    if found != job:
        raise StateFormatError(f"state of job {found}, expected {job}")
    if its_version != version:
        raise StateFormatError(
            f"state of {job} has version {its_version}, this release reads {version}"
        )


_Header = tuple[bytes, tuple[np.dtype[Any], ...], list[bool]]
"""Its bytes, the types of the arrays, and which arrays have them already."""
_headers: dict[tuple[str, int], tuple[tuple[str, ...], list[np.dtype[Any]], _Header]] = {}
"""By job and version: the arrays that were written last, and their header."""


def _header(job: str, version: int, arrays: Mapping[str, Array]) -> _Header:
    names = tuple(arrays)
    types = [a.dtype if a.ndim == 1 else np.dtype((a.dtype, a.shape[1:])) for a in arrays.values()]
    known = _headers.get((job, version))
    if known is None or known[0] != names or types != known[1]:
        header = json.dumps(
            {
                "job": job,
                "version": version,
                "arrays": [[name, _fields(kind)] for name, kind in zip(names, types, strict=True)],
            },
            separators=(",", ":"),
        ).encode()
        wanted = _plan(header).types
        same = [a == b for a, b in zip(types, wanted, strict=True)]
        known = _headers[job, version] = names, types, (header, wanted, same)
    return known[2]


def _without_padding(rows: Array) -> bytes:
    """Rows with zeros between their fields, where numpy leaves arbitrary bytes."""
    held = _held(rows.dtype)
    if held is None:
        return rows.tobytes()
    return (np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1) & held).tobytes()


@lru_cache(maxsize=256)
def _held(kind: np.dtype[Any]) -> Array | None:
    """255 for each byte of a row that belongs to a field, else 0; None if all do."""
    held = np.zeros(kind.itemsize, np.uint8)
    for part, at, *_ in (kind.fields or {}).values():
        held[at : at + part.itemsize] = 255
    return None if held.all() else held


def _fields(kind: np.dtype[Any]) -> list[list[Any]]:
    """Name, element type and shape of each field; an array without fields has one field without a
    name.
    """
    if kind.names is None:
        return [["", kind.base.str, list(kind.shape)]]
    return [[name, kind[name].base.str, list(kind[name].shape)] for name in kind.names]


@lru_cache(maxsize=64)
def _plan(header: bytes) -> _Plan:
    found: dict[str, Any] = json.loads(header)
    names, types = [], []
    for name, fields in found["arrays"]:
        names.append(name)
        if fields and fields[0][0] == "":
            _, element, shape = fields[0]
            types.append(np.dtype((element, tuple(shape))) if shape else np.dtype(element))
        else:
            types.append(np.dtype([(f, t, tuple(shape)) for f, t, shape in fields], align=True))
    return _Plan(found["job"], found["version"], tuple(names), tuple(types))


def _opened(data: bytes) -> tuple[_Plan, bytes]:
    """The contents of the header, and the body."""
    if data[:4] != MAGIC:
        raise StateFormatError("not a state of Weir: magic bytes are missing")
    end = 8 + struct.unpack_from("<I", data, 4)[0]
    (size,) = struct.unpack_from("<Q", data, end)
    packed = memoryview(data)[end + 8 :]
    body: bytes = pa.decompress(packed, decompressed_size=size, codec=COMPRESSION, asbytes=True)
    return _plan(bytes(data[8:end])), body  # Spark keeps states as bytearray


def _lengths(plan: _Plan, body: bytes) -> tuple[list[int], int]:
    """The length of each array, and the position of the first."""
    count = len(plan.names)
    return np.frombuffer(body, np.int64, count).tolist(), 8 * count


def _by_field_header(data: bytes) -> dict[str, Any]:
    length = struct.unpack_from("<I", data, 4)[0]
    header: dict[str, Any] = json.loads(data[8 : 8 + length])
    return header


def _by_field(header: Mapping[str, Any], data: bytes) -> dict[str, Array]:
    start, size = 8 + struct.unpack_from("<I", data, 4)[0], header["bytes"]
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
