"""Tables of state: what a row is, declared once, and how rows are found by their identity.

A job declares the fields of its rows, those that identify a row first. From the declaration come the
record that a kernel reads and writes, the part of the state that keeps it, which names in it are
renumbered, and the table in memory: rows, and an index of their identities.

    class Usage(StateRow):
        broker: Key[Place]
        user: Key[Name]
        requests: Count
        since_ms: Ms = NULL

    u = w.usage.rows[at(w.usage, (broker, user))]      # found or added; the others have defaults
    u.requests += 1
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar, get_type_hints

import numpy as np

from state.engine.kernel import Array, Int, compiled, inlined
from state.engine.store import Columns
from state.engine.structs import repeated, words

NOBODY = np.int64(-1)
"""The place of a row that is not there."""
_ROOM = 64
_MIX, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(29)


class Field(NamedTuple):
    """How a value is kept; every field has 8 bytes, so that a row is a row of words."""

    dtype: str = "<i8"
    is_name: bool = False
    default: float = 0


T = TypeVar("T")
_KEY = "key"
Key = Annotated[T, _KEY]
"""Part of the identity."""
Count = Annotated[Any, Field()]
Code = Annotated[Any, Field()]
"""A position in a list of words."""
Place = Annotated[Any, Field()]
"""A position in another table."""
Ms = Annotated[Any, Field()]
Real = Annotated[Any, Field("<f8")]
Name = Annotated[Any, Field(is_name=True, default=-1)]
"""An integer of the shard's names, -1 for none."""


class StateRow:
    """A row of a table of state; a subclass declares the fields, those of the identity first."""

    fields: ClassVar[dict[str, Field]]
    keys: ClassVar[tuple[str, ...]]
    dtype: ClassVar[np.dtype[Any]]
    blank: ClassVar[Array]
    """One row with the defaults."""

    def __init_subclass__(cls) -> None:
        hints = get_type_hints(cls, include_extras=True)
        own = {name: hints[name].__metadata__ for name in cls.__annotations__}
        cls.fields = {
            name: about[0]._replace(default=getattr(cls, name, about[0].default))
            for name, about in own.items()
        }
        cls.keys = tuple(name for name, about in own.items() if _KEY in about)
        if tuple(own)[: len(cls.keys)] != cls.keys:
            raise TypeError(f"{cls.__name__}: the fields of the identity stand first")
        kinds = [(name, field.dtype) for name, field in cls.fields.items()]
        cls.dtype = np.dtype(kinds, align=True)
        cls.blank = np.array([tuple(field.default for field in cls.fields.values())], cls.dtype)

    @classmethod
    def part(cls, name: str) -> Columns:
        """The part of a state that keeps such rows."""
        return Columns(
            name, cls.dtype, tuple(n for n, field in cls.fields.items() if field.is_name)
        )


class Indexed(NamedTuple):
    """Rows, and an index of the identities of those in use."""

    rows: Any
    """Records, whose fields are attributes in a kernel."""
    words: Array
    """The same memory in words of 8 bytes."""
    slots: Array
    """Open addressing: the place of a row, -1 for none."""
    used: Array
    """One element: how many rows are in use."""


def table(row: type[StateRow], rows: Array, room: int = 0) -> Indexed:
    """A table with these rows, and room for some more (at least `room` in all)."""
    count = len(rows)
    every = repeated(row.blank, max(room, 2 * count + _ROOM))
    words(every)[:count] = words(np.ascontiguousarray(rows))
    size = 64
    while size < 2 * len(every):
        size *= 2
    found = Indexed(every, words(every), np.full(size, -1, np.int32), np.array([count]))
    _enter_all(found, _keys_of(row))
    return found


def in_use(t: Indexed) -> Array:
    """The rows of a table."""
    found: Array = t.rows[: int(t.used[0])]
    return found


def with_room(row: type[StateRow], t: Indexed, more: int) -> Indexed:
    """The table, or a larger one if it has no room for so many more rows."""
    rows = in_use(t)
    return t if len(rows) + more <= len(t.rows) else table(row, rows, 2 * (len(rows) + more))


def _keys_of(row: type[StateRow]) -> tuple[np.int64, ...]:
    """A tuple as long as the identity: its length is part of a compiled function's type."""
    return (np.int64(0),) * len(row.keys)


@inlined
def _slot(t: Indexed, key: Any) -> Int:
    h = np.uint64(0)
    for i in range(len(key)):
        h = (h ^ np.uint64(key[i])) * _MIX
        h ^= h >> _SHIFT
    return np.int64(h & np.uint64(len(t.slots) - 1))


@inlined
def _same(t: Indexed, place: Int, key: Any) -> bool:
    for i in range(len(key)):
        if t.words[place, i] != key[i]:
            return False
    return True


@inlined
def _probe(t: Indexed, key: Any) -> Int:
    """The slot of a row, or the free one where it would be."""
    p = _slot(t, key)
    while t.slots[p] >= 0 and not _same(t, np.int64(t.slots[p]), key):
        p = (p + 1) & (len(t.slots) - 1)
    return p


@compiled
def find(t: Indexed, key: Any) -> Int:
    """The place of a row, given its identity; NOBODY without one."""
    return np.int64(t.slots[_probe(t, key)])


@compiled
def at(t: Indexed, key: Any) -> Int:
    """The place of a row, found or added. The caller has seen that there is room (`is_short`)."""
    p = _probe(t, key)
    place = np.int64(t.slots[p])
    if place < 0:
        place = t.used[0]
        t.used[0] = place + 1
        for i in range(len(key)):
            t.words[place, i] = key[i]
        t.slots[p] = place
    return place


@inlined
def is_short(t: Indexed, more: Int) -> bool:
    """Whether there is no room for so many more rows."""
    return bool(t.used[0] + more > len(t.rows))


@compiled
def _enter_all(t: Indexed, key: Any) -> None:
    """Index the rows in use; `key` has the length of the identity."""
    for place in range(t.used[0]):
        h = np.uint64(0)
        for i in range(len(key)):
            h = (h ^ np.uint64(t.words[place, i])) * _MIX
            h ^= h >> _SHIFT
        p = np.int64(h & np.uint64(len(t.slots) - 1))
        while t.slots[p] >= 0:
            p = (p + 1) & (len(t.slots) - 1)
        t.slots[p] = place
