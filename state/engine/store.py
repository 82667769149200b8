"""The state of a shard as a job declares it: parts, their arrays, and which of them hold names.

A job declares its parts once. `Store.read` turns bytes into the value of each part; `Store.write`
turns values into bytes and drops unused names. Other releases read the names of arrays and fields
and the version, so changing one requires a new version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Protocol

import numba
import numpy as np
import pyarrow as pa

from state.engine import codec
from state.engine.blobs import TEXTS
from state.engine.kernel import NULL
from state.engine.names import NONE, Names
from state.engine.records import SHIPPED, Array, Records
from state.engine.structs import words

Arrays = Mapping[str, Any]
"""By name an array; of a Struct that is being written, a list of arrays, too."""
Saved = dict[str, Any]
Values = dict[str, Any]
"""By part: an array, records, or texts."""
COMPACT_BELOW = 0.75
"""Share of names in use below which names are renumbered."""
_NAMES, _LENGTHS = "names", "name_lengths"
_BLOCK = 64


class Part(Protocol):
    """A part of a state: its value, and the arrays in which it is stored."""

    @property
    def name(self) -> str:
        """Name of the value."""
        ...

    def blank(self) -> Any:
        """The value in a new shard."""
        ...

    def load(self, arrays: Arrays, names: Names) -> Any:
        """The value from its arrays."""
        ...

    def save(self, value: Any, arrays: Saved, names: Names) -> None:
        """Add the arrays of the value to the others."""
        ...

    @property
    def named(self) -> Sequence[str]:
        """The arrays with names."""
        ...

    def ids(self, arrays: Arrays) -> Sequence[Array]:
        """Views of the integers of names in the named arrays, -1 for none."""
        ...


@dataclass(frozen=True)
class Plain:
    """An array without fields; `names` states that it has integers of names."""

    name: str
    dtype: Any = np.int64
    names: bool = False

    def blank(self) -> Array:
        """No elements."""
        return np.zeros(0, self.dtype)

    def load(self, arrays: Arrays, names: Names) -> Array:
        """The array."""
        return arrays[self.name]

    def save(self, value: Array, arrays: Saved, names: Names) -> None:
        """The array."""
        arrays[self.name] = value

    @property
    def named(self) -> Sequence[str]:
        """The array, if it is of names."""
        return (self.name,) * self.names

    def ids(self, arrays: Arrays) -> Sequence[Array]:
        """The array, if it is of names."""
        return [arrays[name] for name in self.named]


@dataclass(frozen=True)
class Pool:
    """Integers column by column, shape (columns, rows), stored as one flat array; `names` are the
    columns with integers of names.
    """

    name: str
    columns: int
    names: tuple[int, ...] = ()

    def blank(self) -> Array:
        """No rows."""
        return np.zeros((self.columns, 0), np.int64)

    def load(self, arrays: Arrays, names: Names) -> Array:
        """Its columns."""
        return arrays[self.name].reshape(self.columns, -1)

    def save(self, value: Array, arrays: Saved, names: Names) -> None:
        """Its columns, one after the other."""
        arrays[self.name] = value.reshape(-1)

    @property
    def named(self) -> Sequence[str]:
        """The flat array, if it has names."""
        return (self.name,) if self.names else ()

    def ids(self, arrays: Arrays) -> Sequence[Array]:
        """The columns of names."""
        columns = arrays[self.name].reshape(self.columns, -1)
        return [columns[i] for i in self.names]


@dataclass(frozen=True)
class Struct:
    """An array with fields, stored unchanged; `names` are the fields with integers of names.

    A field that an older state lacks is 0. A value to store may be a list of arrays that follow
    each other.
    """

    name: str
    dtype: np.dtype[Any]
    names: tuple[str, ...] = ()

    def blank(self) -> Array:
        """No elements."""
        return np.zeros(0, self.dtype)

    def load(self, arrays: Arrays, names: Names) -> Array:
        """The array in its present layout."""
        stored = arrays[self.name]
        if _same(stored.dtype, self.dtype):
            return stored.view(self.dtype)
        found = np.zeros(len(stored), self.dtype)
        for field in self.dtype.names or ():
            if field in (stored.dtype.names or ()):
                found[field] = stored[field]
        return found

    def save(self, value: Array | list[Array], arrays: Saved, names: Names) -> None:
        """The array."""
        arrays[self.name] = value

    @property
    def named(self) -> Sequence[str]:
        """The array, if it has names."""
        return (self.name,) if self.names else ()

    def ids(self, arrays: Arrays) -> Sequence[Array]:
        """The fields of names."""
        return [piece[field] for piece in _pieces(arrays[self.name]) for field in self.names]


@dataclass(frozen=True)
class Columns:
    """An array with fields of 8 bytes, stored as one plain array `name.field` per field.

    `names` are the fields with integers of names; `derived` fields are not stored. A field that an
    older state lacks is 0, or NONE where it would be a name.
    """

    name: str
    dtype: np.dtype[Any]
    names: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()

    def blank(self) -> Array:
        """No elements."""
        return np.zeros(0, self.dtype)

    def load(self, arrays: Arrays, names: Names) -> Array:
        """The array; derived fields are zero."""
        kept = [name in arrays for name in self._stored]
        every = all(kept)
        stored = self._stored if every else [n for n in self._stored if n in arrays]
        columns = codec.together(arrays, stored)
        found = np.zeros(columns.shape[1], self.dtype)
        if len(found):
            turn_back(columns, self._places if every else self._places[kept], words(found))
        for field in () if every else self.names:
            if f"{self.name}.{field}" not in arrays:
                found[field] = NONE
        return found

    def save(self, value: Array, arrays: Saved, names: Names) -> None:
        """Copies of its fields."""
        columns = np.empty((len(self._fields), len(value)), np.int64)
        if len(value):
            _turn(words(np.ascontiguousarray(value)), self._places, columns)
        for column, (name, kind, _) in zip(columns, self._fields, strict=True):
            arrays[name] = column if kind == np.int64 else column.view(kind)

    @cached_property
    def named(self) -> Sequence[str]:
        """The fields of names."""
        return [f"{self.name}.{field}" for field in self.names]

    def ids(self, arrays: Arrays) -> Sequence[Array]:
        """The fields of names."""
        return [arrays[name] for name in self.named if name in arrays]

    @cached_property
    def _fields(self) -> list[tuple[str, np.dtype[Any], int]]:
        """Array, type and word of each stored field."""
        kept = [f for f in self.dtype.names or () if f not in self.derived]
        if any(self.dtype[field].itemsize != 8 for field in kept):
            raise TypeError(f"{self.name} has a field that is not of 8 bytes")
        offsets = {field: about[1] // 8 for field, about in (self.dtype.fields or {}).items()}
        return [(f"{self.name}.{field}", self.dtype[field], offsets[field]) for field in kept]

    @cached_property
    def _stored(self) -> tuple[str, ...]:
        return tuple(name for name, _, _ in self._fields)

    @cached_property
    def _places(self) -> Array:
        return np.array([word for _, _, word in self._fields], np.int64)


@dataclass(frozen=True)
class RecordSet:
    """Records, stored as one plain array `name.column` per column.

    `columns` are those of the contract that the job carries; `more` are columns of the job itself, of
    8 bytes. A column that an older state lacks is
    null.
    """

    name: str
    columns: tuple[str, ...]
    more: tuple[str, ...] = ()

    def blank(self) -> Records:
        """No records."""
        columns = self._kept[1]
        return Records(columns, np.empty((len(columns), 0), np.int64))

    def load(self, arrays: Arrays, names: Names) -> Records:
        """The records."""
        kept, columns = self._kept
        if not all(name in arrays for name in kept):
            length = len(arrays[kept[0]])
            null = {
                name: np.full(length, NONE if name in self.named else NULL)
                for name in kept
                if name not in arrays
            }
            arrays = {**arrays, **null}
        return Records(columns, codec.together(arrays, kept))

    def save(self, value: Records, arrays: Saved, names: Names) -> None:
        """The records."""
        kept, columns = self._kept
        rows = value.data if value.columns == columns else [value[name] for name in columns]
        arrays.update(zip(kept, rows, strict=True))

    @cached_property
    def named(self) -> Sequence[str]:
        """The columns of names."""
        return [
            f"{self.name}.{column}"
            for column in (*self.columns, *SHIPPED, *self.more)
            if column in TEXTS
        ]

    def ids(self, arrays: Arrays) -> Sequence[Array]:
        """The columns of names."""
        return [arrays[name] for name in self.named if name in arrays]

    @cached_property
    def _kept(self) -> tuple[list[str], tuple[str, ...]]:
        """The arrays and their columns, in the order of blobs."""
        every = (*self.columns, *SHIPPED, "held", *self.more)
        return [f"{self.name}.{column}" for column in every], every


@dataclass(frozen=True)
class Texts:
    """A few strings, stored as integers of names."""

    name: str

    def blank(self) -> tuple[str, ...]:
        """No strings."""
        return ()

    def load(self, arrays: Arrays, names: Names) -> tuple[str, ...]:
        """The strings."""
        return tuple(names.get(text) for text in arrays[self.name].tolist())

    def save(self, value: Sequence[str], arrays: Saved, names: Names) -> None:
        """Their names."""
        arrays[self.name] = names.intern(_strings(tuple(value)))

    @property
    def named(self) -> Sequence[str]:
        """Their names."""
        return (self.name,)

    def ids(self, arrays: Arrays) -> Sequence[Array]:
        """Their names."""
        return [arrays[self.name]]


class Store:
    """The state of a job: its name, version and parts."""

    def __init__(self, job: str, version: int, *parts: Part, added: Sequence[str] = ()) -> None:
        """`version` is that of the arrays; a release reads one version. States of this version may
        lack the parts named by `added`, which are not stored while they are blank.
        """
        self.job, self.version, self.parts = job, version, parts
        self._added = frozenset(added)
        self._naming = [part for part in parts if len(part.named)]

    def blank(self) -> Values:
        """The values of a new shard."""
        return {part.name: part.blank() for part in self.parts}

    def opened(self, data: bytes | None) -> tuple[Values, Names]:
        """The values and names of a state, or of a new shard, which has had no configuration yet."""
        return self.read(data) if data else (self.blank() | {"config": None}, Names())

    def read(self, data: bytes, into: Names | None = None) -> tuple[Values, Names]:
        """The writable values of a state, and its names, which are added to `into` if given.

        Raises StateFormatError for other bytes, another job or another version.
        """
        arrays = codec.decode(self.job, self.version, data)
        names = Names(arrays[_NAMES], arrays[_LENGTHS])
        if into is not None:
            self._renumber(arrays, np.append(into.intern_utf8(*names.utf8()), NONE))
            names = into
        missing = self._missing(arrays)
        return {
            part.name: part.blank() if part.name in missing else part.load(arrays, names)
            for part in self.parts
        }, names

    def _missing(self, arrays: Arrays) -> frozenset[str]:
        """The added parts that a state lacks: it is older, or they were blank."""
        return _missing(self._added, tuple(arrays)) if self._added else self._added

    def write(
        self, values: Mapping[str, Any], names: Names, compression: str = codec.FAST
    ) -> bytes:
        """The bytes of values and names. Neither changes, except that texts are added to the names."""
        arrays: Saved = {}
        for part in self.parts:
            if part.name not in self._added or len(_rows(values[part.name])):
                part.save(values[part.name], arrays, names)
        names = self._compact(names, arrays)
        arrays[_NAMES], arrays[_LENGTHS] = names.arrays()
        return codec.encode(self.job, self.version, arrays, compression)

    def _compact(self, names: Names, arrays: Saved) -> Names:
        """Drop unused names, once there are many."""
        used = np.zeros(len(names) + 1, bool)
        missing = self._missing(arrays)
        naming = [part for part in self._naming if part.name not in missing]
        used[np.concatenate([ids for part in naming for ids in part.ids(arrays)])] = True
        used = used[:-1]
        if np.count_nonzero(used) >= COMPACT_BELOW * len(names):
            return names
        smaller, number = names.compact(used)
        for part in naming:
            for name in part.named:
                whole = arrays[name]
                pieces = [piece.copy() for piece in _pieces(whole)]
                arrays[name] = pieces if isinstance(whole, list) else pieces[0]
        self._renumber(arrays, number)
        return smaller

    def _renumber(self, arrays: Arrays, number: Array) -> None:
        """Replace integers of names by new ones, given by the old integer and, last, by NONE."""
        missing = self._missing(arrays)
        for part in self._naming:
            for column in () if part.name in missing else part.ids(arrays):
                column[...] = number[column]


@lru_cache(maxsize=64)
def _missing(parts: frozenset[str], arrays: tuple[str, ...]) -> frozenset[str]:
    """Parts of which a state has none of these arrays."""
    return frozenset(
        part
        for part in parts
        if not any(name == part or name.startswith(f"{part}.") for name in arrays)
    )


def _pieces(array: Any) -> list[Array]:
    """The arrays that an array to store consists of."""
    return array if isinstance(array, list) else [array]


def _rows(value: Any) -> Array:
    """The array itself, or the data of a set of records."""
    found: Array = value.data[0] if isinstance(value, Records) else value
    return found


@lru_cache(maxsize=1024)
def _same(stored: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    return stored == wanted


@lru_cache(maxsize=64)
def _strings(texts: tuple[str, ...]) -> pa.StringArray:
    return pa.array(texts, pa.string())


@numba.njit(cache=True, nogil=True)
def _turn(rows: Array, places: Array, columns: Array) -> None:
    """Copy some words of rows into columns, block by block: all fields in one pass."""
    for begin in range(0, len(rows), _BLOCK):
        end = min(begin + _BLOCK, len(rows))
        for j in range(len(places)):
            for i in range(begin, end):
                columns[j, i] = rows[i, places[j]]


@numba.njit(cache=True, nogil=True)
def turn_back(columns: Array, places: Array, rows: Array) -> None:
    """Copy columns into some words of rows."""
    for begin in range(0, len(rows), _BLOCK):
        end = min(begin + _BLOCK, len(rows))
        for j in range(len(places)):
            for i in range(begin, end):
                rows[i, places[j]] = columns[j, i]
