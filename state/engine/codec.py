"""The state of a shard as bytes: a named, versioned set of plain arrays.

Layout: 4 bytes magic, 4 bytes header length, JSON header, 8 bytes length of the body, the
compressed body. The header names the job, its state version and every array with its fields, so
that a reader can refuse an unknown state and describe a known one. It has no lengths, so it is the
same for every shard of a job, and is written and parsed once. Equal arrays have equal bytes.

Arrays whose elements are whole words of 64 bits are stored column by column in as few bytes as
their values need (`state.engine.packing`), others as they are; bytes between fields are zero.

    lengths     of each array                          int64
    bases       of each column of words                int64
    widths      of each column of words                uint8, padded to 8 bytes
    columns     one after the other, each padded to 8 bytes
    others      one after the other

Arrays of `RAW`, bytes that are compressed already, follow the compressed body; its length is then
8 bytes before it. They are read as views of the state.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from state.engine.packing import pack, unpack
from state.engine.structs import record

Array = np.ndarray
MAGIC = b"WEI3"
RAW = np.dtype("V1")
"""Of bytes that are stored as they are, without another compression."""
FAST, DENSE = "lz4", "zstd"
"""How a body is compressed: of a state, which each batch reads and writes, or of bytes that are written
once and read rarely."""
_DENSE_MAGIC = b"\x28\xb5\x2f\xfd"
_WORD = np.dtype(np.int64)
_NOTHING = np.zeros(0, np.int64)
_LARGE = 8192
"""Words of an array that is not copied to be packed with others: a call costs as much."""


class StateFormatError(Exception):
    """State bytes that this version of the job cannot read."""


class _Plan:
    """The contents of a header: job, version, and the names and types of the arrays as `decode`
    makes them, plain or aligned structures.
    """

    def __init__(self, header: bytes) -> None:
        found: dict[str, Any] = json.loads(header)
        self.header, self.job, self.version = header, found["job"], found["version"]
        self.names = tuple(name for name, _ in found["arrays"])
        self.types = tuple(_type(fields) for _, fields in found["arrays"])

    @cached_property
    def number(self) -> dict[str, int]:
        """The position of each array."""
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def words(self) -> Array:
        """By array, the words of an element; 0 where these are not whole words."""
        return np.array([kind.itemsize * (kind.itemsize % 8 == 0) // 8 for kind in self.types])

    @cached_property
    def are_words(self) -> list[bool]:
        """By array, whether its elements are whole words."""
        return [bool(count) for count in self.words]

    @cached_property
    def packed(self) -> Array:
        """The arrays of words."""
        return np.flatnonzero(self.words)

    @cached_property
    def starts(self) -> list[int]:
        """The first column of each array of words, and how many columns there are."""
        return [0, *np.cumsum(self.words[self.packed]).tolist()]

    @cached_property
    def raw(self) -> list[int]:
        """The arrays of RAW."""
        return [i for i, kind in enumerate(self.types) if kind == RAW]

    @cached_property
    def others(self) -> list[int]:
        """The other arrays."""
        return [i for i in np.flatnonzero(self.words == 0).tolist() if i not in self.raw]

    @cached_property
    def sizes(self) -> Array:
        """Bytes of an element, by array."""
        return np.array([kind.itemsize for kind in self.types], np.int64)

    @cached_property
    def masks(self) -> Array:
        """By column, the bits that belong to fields."""
        held = [_held(self.types[i]) for i in self.packed]
        return np.concatenate([*held, np.zeros(0, np.uint8)]).view(np.int64)

    def shapes(self, lengths: Array) -> Array:
        """Rows, and words of a row, of the arrays of words."""
        found = np.empty((len(self.packed), 2), np.int64)
        found[:, 0], found[:, 1] = lengths[self.packed], self.words[self.packed]
        return found


def _type(fields: Sequence[Any]) -> np.dtype[Any]:
    if fields and fields[0][0] == "":
        _, element, shape = fields[0]
        return np.dtype((element, tuple(shape))) if shape else np.dtype(element)
    return record([(f, t, tuple(shape)) for f, t, shape in fields])


class Stored(Mapping[str, Array]):
    """The writable arrays of a state; each is made when it is first asked for. Those of RAW are views."""

    def __init__(self, plan: _Plan, body: bytes, raw: memoryview) -> None:
        self._plan, count, columns = plan, len(plan.names), len(plan.masks)
        lengths = np.frombuffer(body, np.int64, count)
        bases = np.frombuffer(body, np.int64, columns, 8 * count)
        widths = np.frombuffer(body, np.uint8, columns, 8 * (count + columns))
        data = np.frombuffer(body, np.uint8, offset=_head(plan))
        ends = np.cumsum(lengths * plan.words)
        self._words = np.empty(int(ends[-1]) if count else 0, np.int64)
        unpack(data, plan.shapes(lengths), bases, widths, self._words)
        self._lengths, self._ends = lengths.tolist(), ends.tolist()
        self._made: dict[str, Array] = {}
        end = len(body)
        for i in reversed(plan.others):
            kind, length = plan.types[i], self._lengths[i]
            end -= length * kind.itemsize
            self._made[plan.names[i]] = np.ndarray(length, kind, body, end).copy()
        end = 0
        for i in plan.raw:
            self._made[plan.names[i]] = np.ndarray(self._lengths[i], RAW, raw, end)
            end += self._lengths[i]

    def __getitem__(self, name: str) -> Array:
        found = self._made.get(name)
        if found is None:
            i = self._plan.number[name]
            kind, length = self._plan.types[i], self._lengths[i]
            begin = self._ends[i] * 8 - length * kind.itemsize
            found = self._made[name] = np.ndarray(length, kind, self._words, begin)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._plan.names)

    def __len__(self) -> int:
        return len(self._plan.names)

    def __contains__(self, name: object) -> bool:
        return name in self._plan.number

    def together(self, names: Sequence[str]) -> Array | None:
        """Arrays of words as rows of one array, if they are stored one after the other."""
        plan, count = self._plan, len(names)
        first = plan.number.get(names[0], len(plan.names))
        last = first + count
        rows = self._lengths[first:last]
        if plan.names[first:last] != tuple(names) or rows != rows[:1] * count:
            return None
        if any(kind.itemsize != 8 for kind in plan.types[first:last]):
            return None
        end = self._ends[last - 1]
        return self._words[end - count * rows[0] : end].reshape(count, rows[0])


def together(arrays: Mapping[str, Array], names: Sequence[str]) -> Array:
    """Arrays of one length as rows of words of one array."""
    found = arrays.together(names) if isinstance(arrays, Stored) else None
    if found is None:
        words = [arrays[name].view(np.int64) for name in names]
        found = np.concatenate(words).reshape(len(names), -1)
    return found


def encode(
    job: str, version: int, arrays: Mapping[str, Array | list[Array]], compression: str = FAST
) -> bytes:
    """Write plain arrays, and structured ones of one dimension, under their names; a structured one
    of whole words may be a list of its pieces.
    """
    plan, same = _plan_of(job, version, arrays)
    counts: list[int] = []
    words: list[Array] = []
    pieces: dict[int, list[Array]] = {}
    others: list[Array] = []
    raw: list[memoryview] = []
    for array, wanted, is_wanted, of_words in zip(
        arrays.values(), plan.types, same, plan.are_words, strict=True
    ):
        if isinstance(array, list):
            rows = array if is_wanted else [piece.astype(wanted) for piece in array]
            counts.append(sum(map(len, rows)))
            pieces[len(words)] = [_words(piece) for piece in rows]
            words.append(_NOTHING)
            continue
        counts.append(len(array))
        whole = array if is_wanted else array.astype(wanted)
        if wanted == RAW:
            raw.append(memoryview(whole.view(np.uint8)))  # type: ignore[arg-type]
        elif not of_words:
            others.append(_without_padding(whole))
        else:
            words.append(whole if wanted is _WORD else _words(whole))
    lengths = np.array(counts, np.int64)
    head, columns, shapes = _head(plan), len(plan.masks), plan.shapes(lengths)
    sizes = shapes[:, 0] * shapes[:, 1]
    total = int(sizes.sum())
    body = np.zeros(head + 8 * (total + columns) + sum(map(len, others)), np.uint8)
    body[: 8 * len(lengths)].view(np.int64)[:] = lengths
    bases = body[8 * len(lengths) : 8 * (len(lengths) + columns)].view(np.int64)
    widths = body[8 * (len(lengths) + columns) :][:columns]
    size, room = head, np.empty(0, np.int64)
    for first, last in [(0, len(words))] if total < _LARGE else _neighbours(sizes):
        parts = words[first:last]
        for i in [i for i in pieces if first <= i < last][::-1]:
            parts[i - first : i - first + 1] = pieces[i]
        if len(parts) == 1:
            flat = np.ascontiguousarray(parts[0])
        else:
            count = int(sizes[first:last].sum())
            room = room if count <= len(room) else np.empty(count, np.int64)
            flat = np.concatenate([_NOTHING, *parts], out=room[:count])
        part = slice(plan.starts[first], plan.starts[last])
        size += pack(
            flat, shapes[first:last], plan.masks[part], bases[part], widths[part], body[size:]
        )
    for other in others:
        body[size : size + len(other)] = other
        size += len(other)
    packed = pa.compress(body[:size], codec=compression, asbytes=True)
    return b"".join(
        (
            MAGIC,
            struct.pack("<I", len(plan.header)),
            plan.header,
            struct.pack("<Q", size),
            struct.pack("<Q", len(packed)) if plan.raw else b"",
            packed,
            *raw,
        )
    )


def _words(rows: Array) -> Array:
    """A flat array of the words of rows."""
    return np.ascontiguousarray(rows).view(np.int64).reshape(-1)


def _neighbours(sizes: Array) -> Iterator[tuple[int, int]]:
    """Bounds of arrays to pack in one call, by their words: small ones together, which are copied
    for it, and each large one by itself.
    """
    first = 0
    for i in np.flatnonzero(sizes >= _LARGE).tolist():
        if first < i:
            yield first, i
        yield i, i + 1
        first = i + 1
    if first < len(sizes):
        yield first, len(sizes)


def decode(job: str, version: int, data: bytes) -> Mapping[str, Array]:
    """Read what `encode` wrote; the arrays are writable copies.

    Raises StateFormatError for other bytes, another job or an unknown version.
    """
    plan, body, raw = _opened(data)
    _require(job, version, plan.job, plan.version)
    return Stored(plan, body, raw)


def _require(job: str, version: int, found: str, its_version: int) -> None:
    if found != job:
        raise StateFormatError(f"state of job {found}, expected {job}")
    if its_version != version:
        raise StateFormatError(
            f"state of {job} has version {its_version}, this release reads {version}"
        )


_Known = tuple[_Plan, list[bool]]
"""A header, and which arrays have the types in it already."""
_plans: dict[tuple[str, int], tuple[tuple[str, ...], list[np.dtype[Any]], _Known]] = {}
"""By job and version: the arrays that were written last, and their header."""


def _plan_of(job: str, version: int, arrays: Mapping[str, Array | list[Array]]) -> _Known:
    names = tuple(arrays)
    firsts = [a[0] if isinstance(a, list) else a for a in arrays.values()]
    types = [a.dtype if a.ndim == 1 else np.dtype((a.dtype, a.shape[1:])) for a in firsts]
    known = _plans.get((job, version))
    if known is None or known[0] != names or types != known[1]:
        header = json.dumps(
            {
                "job": job,
                "version": version,
                "arrays": [[name, _fields(kind)] for name, kind in zip(names, types, strict=True)],
            },
            separators=(",", ":"),
        ).encode()
        plan = _plan(header)
        # of an array of more dimensions numpy states the type of its elements
        same = [a.base == b.base for a, b in zip(types, plan.types, strict=True)]
        known = _plans[job, version] = names, types, (plan, same)
    return known[2]


def _head(plan: _Plan) -> int:
    """Bytes before the columns."""
    columns = len(plan.masks)
    return 8 * (len(plan.names) + columns) + (columns + 7) // 8 * 8


def _without_padding(rows: Array) -> Array:
    """The bytes of rows, zeros between their fields, where numpy leaves arbitrary bytes."""
    flat = np.ascontiguousarray(rows).reshape(-1).view(np.uint8)
    if rows.dtype.names is None or not len(rows):
        return flat
    return (flat.reshape(len(rows), -1) & _held(rows.dtype)).reshape(-1)


@lru_cache(maxsize=256)
def _held(kind: np.dtype[Any]) -> Array:
    """255 for each byte of a row that belongs to a field, else 0."""
    held = np.full(kind.itemsize, 255 * (kind.names is None), np.uint8)
    for part, at, *_ in (kind.fields or {}).values():
        held[at : at + part.itemsize] = 255
    return held


def _fields(kind: np.dtype[Any]) -> list[list[Any]]:
    """Name, element type and shape of each field; an array without fields has one field without a
    name.
    """
    if kind.names is None:
        return [["", kind.base.str, list(kind.shape)]]
    return [[name, kind[name].base.str, list(kind[name].shape)] for name in kind.names]


_plan = lru_cache(maxsize=64)(_Plan)


def _opened(data: bytes) -> tuple[_Plan, bytes, memoryview]:
    """The contents of the header, the body, and what follows it."""
    if data[:4] != MAGIC:
        raise StateFormatError("not a state of Weir: magic bytes are missing")
    end = 8 + struct.unpack_from("<I", data, 4)[0]
    (size,) = struct.unpack_from("<Q", data, end)
    plan = _plan(bytes(data[8:end]))  # Spark keeps states as bytearray
    packed = raw = memoryview(data)[end + 8 :]
    if plan.raw:
        last = 8 + struct.unpack_from("<Q", packed)[0]
        packed, raw = packed[8:last], packed[last:]
    compression = DENSE if packed[:4] == _DENSE_MAGIC else FAST
    body: bytes = pa.decompress(packed, decompressed_size=size, codec=compression, asbytes=True)
    return plan, body, raw
