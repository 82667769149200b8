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

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar, get_type_hints

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, overload

from state.engine.compiling import generator
from state.engine.kernel import Array, Int, Record, compiled, inlined
from state.engine.store import Columns
from state.engine.structs import record, words

NOBODY = np.int64(-1)
"""The place of a row that is not there."""
Rows = Any
"""An array of records, whose fields are attributes in a kernel."""
_ROOM = 64
_NONE = np.zeros(0, np.int64)
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
    """A row of a table of state; a subclass declares the fields, those of the identity first. Fields
    that it inherits stand behind the identity."""

    fields: ClassVar[dict[str, Field]]
    keys: ClassVar[tuple[str, ...]]
    dtype: ClassVar[np.dtype[Any]]
    blank: ClassVar[Array]
    """One row with the defaults."""

    def __init_subclass__(cls) -> None:
        hints = get_type_hints(cls, include_extras=True)
        own = {name: hints[name].__metadata__ for name in cls.__annotations__}
        cls.keys = tuple(name for name, about in own.items() if _KEY in about)
        inherited = getattr(cls, "fields", {})
        cls.fields = {
            name: field._replace(default=getattr(cls, name, field.default))
            for name, field in (
                *((name, own[name][0]) for name in cls.keys),
                *inherited.items(),
                *((name, about[0]) for name, about in own.items() if name not in cls.keys),
            )
        }
        if tuple(own)[: len(cls.keys)] != cls.keys:
            raise TypeError(f"{cls.__name__}: the fields of the identity stand first")
        kinds = [(name, field.dtype) for name, field in cls.fields.items()]
        cls.dtype = record(kinds)
        cls.blank = np.array([tuple(field.default for field in cls.fields.values())], cls.dtype)

    @classmethod
    def part(cls, name: str) -> Columns:
        """The part of a state that keeps such rows."""
        return Columns(
            name, cls.dtype, tuple(n for n, field in cls.fields.items() if field.is_name)
        )


class Indexed(NamedTuple):
    """Rows, and an index of the identities of those in use."""

    rows: Rows
    words: Array
    """The same memory in words of 8 bytes."""
    blank: Array
    """The words of a row with the defaults."""
    slots: Array
    """Open addressing: the place of a row, -1 for none."""
    used: Array
    """Two elements: how many places are in use or were, and how many of these are free."""
    free: Array
    """The places that are free, the one that is taken next last."""


def table(row: type[StateRow], rows: Array, room: int = 0, free: Array = _NONE) -> Indexed:
    """A table with these rows, and room for some more (at least `room` in all). Rows at the places
    `free` are none; what is behind them all is not set."""
    count = len(rows)
    every = np.empty(max(room, 2 * count + _ROOM), row.dtype)
    words(every)[:count] = words(np.ascontiguousarray(rows))
    words(every)[free] = words(row.blank)
    size = 64
    while size < 2 * len(every):
        size *= 2
    places = np.zeros(len(every), np.int64)
    places[: len(free)] = free
    found = Indexed(
        every,
        words(every),
        words(row.blank)[0],
        np.full(size, -1, np.int32),
        np.array([count, len(free)]),
        places,
    )
    # a tuple as long as the identity: its length is part of a compiled function's type
    _enter_all(found, _is_used(found), (np.int64(0),) * len(row.keys))
    return found


def in_use(t: Indexed) -> Rows:
    """The rows of a table, which has no place that is free."""
    return t.rows[: int(t.used[0])]


def places(t: Indexed) -> Array:
    """Where the rows of a table are, in order."""
    return np.flatnonzero(_is_used(t))


def _is_used(t: Indexed) -> Array:
    found = np.ones(int(t.used[0]), np.bool_)
    found[t.free[: int(t.used[1])]] = False
    return found


def with_room(row: type[StateRow], t: Indexed, more: int) -> Indexed:
    """The table, or a larger one if it has no room for so many more rows. Rows stay where they are."""
    rows, free = t.rows[: int(t.used[0])], t.free[: int(t.used[1])]
    if len(rows) - len(free) + more <= len(t.rows):
        return t
    return table(row, rows, 2 * (len(rows) + more), free)


@inlined
def _slot(t: Indexed, key: Any) -> Int:
    """The first slot of the search for an identity."""
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
        place = _new_place(t)
        for i in range(len(key)):
            t.words[place, i] = key[i]
        t.slots[p] = place
    return place


@inlined
def _new_place(t: Indexed) -> Int:
    """A place that is free, or the one behind all, whose row gets the defaults."""
    if t.used[1] > 0:
        t.used[1] -= 1
        return np.int64(t.free[t.used[1]])
    place = np.int64(t.used[0])
    t.used[0] += 1
    for i in range(len(t.blank)):
        t.words[place, i] = t.blank[i]
    return place


@compiled
def drop(t: Indexed, key: Any) -> Int:
    """Remove a row, given its identity; returns the place that it had, which is used again, or
    NOBODY. Slots behind it move up, so that no search ends early."""
    p = _probe(t, key)
    place = np.int64(t.slots[p])
    if place < 0:
        return NOBODY
    last = len(t.slots) - 1
    q = (p + 1) & last
    while t.slots[q] >= 0:
        home = _home(t, np.int64(t.slots[q]), key)
        if ((q - home) & last) >= ((q - p) & last):
            t.slots[p] = t.slots[q]
            p = q
        q = (q + 1) & last
    t.slots[p] = -1
    for i in range(len(t.blank)):
        t.words[place, i] = t.blank[i]
    t.free[t.used[1]] = place
    t.used[1] += 1
    return place


@inlined
def is_short(t: Indexed, more: Int) -> bool:
    """Whether there is no room for so many more rows."""
    return bool(t.used[0] - t.used[1] + more > len(t.rows))


@inlined
def _home(t: Indexed, place: Int, key: Any) -> Int:
    """The first slot of the search for a row; `key` has the length of the identity."""
    h = np.uint64(0)
    for i in range(len(key)):
        h = (h ^ np.uint64(t.words[place, i])) * _MIX
        h ^= h >> _SHIFT
    return np.int64(h & np.uint64(len(t.slots) - 1))


@compiled
def _enter_all(t: Indexed, is_used: Array, key: Any) -> None:
    """Index the rows in use; `key` has the length of the identity."""
    for place in range(len(is_used)):
        if is_used[place]:
            p = _home(t, np.int64(place), key)
            while t.slots[p] >= 0:
                p = (p + 1) & (len(t.slots) - 1)
            t.slots[p] = place


def copy_fields(into: Record, of: Record) -> None:
    """Copy the fields that two rows of different tables both have, in a kernel."""
    for name in into.dtype.names:
        if name in of.dtype.names:
            into[name] = of[name]


@overload(copy_fields, inline="always")
def _copy_fields(into: Any, of: Any) -> Any:
    def copied(into: Any, of: Any) -> Any:
        return _copy_words(into, of)

    return copied


@intrinsic
def _copy_words(context: Any, into: Any, of: Any) -> Any:
    names = [name for name in into.fields if name in of.fields]

    def copied(context: Any, builder: Any, signature: Any, rows: Any) -> Any:
        for name in names:
            target, source = (
                cgutils.get_record_member(builder, row, kind.offset(name), ir.IntType(64))
                for row, kind in zip(rows, (into, of), strict=True)
            )
            builder.store(builder.load(source), target)
        return context.get_dummy_value()

    return types.none(into, of), copied


# -- rows that belong to a row ---------------------------------------------------------------


class Children(NamedTuple):
    """The rows of a table by the row to which they belong, of each owner in an order of its own."""

    first: Array
    """By place of the owner the place of its first one, NOBODY without."""
    last: Array
    following: Array
    """By place of a child the one after it, NOBODY for none."""
    before: Array


def children(owner: Array, places_: Array, owners: int, room: int) -> Children:
    """Children at these places, in order, each with the place of its owner, and room for more; see
    `table`."""
    made = (np.full(n, NOBODY) for n in (owners, owners, room, room))
    found = Children(*made)
    _adopt_all(found, owner, places_)
    return found


def more_children(c: Children, owners: int, room: int) -> Children:
    """The same with room for more owners and children."""

    def more(array: Array, size: int) -> Array:
        return np.append(array, np.full(size - len(array), NOBODY)) if len(array) < size else array

    return Children(
        more(c.first, owners), more(c.last, owners), more(c.following, room), more(c.before, room)
    )


@compiled
def adopt(c: Children, owner: Int, place: Int) -> None:
    """Add a child behind the others of its owner."""
    last = c.last[owner]
    c.before[place], c.following[place] = last, NOBODY
    if last >= 0:
        c.following[last] = place
    else:
        c.first[owner] = place
    c.last[owner] = place


@compiled
def release(c: Children, owner: Int, place: Int) -> None:
    """Take a child from its owner."""
    before, following = c.before[place], c.following[place]
    if before >= 0:
        c.following[before] = following
    else:
        c.first[owner] = following
    if following >= 0:
        c.before[following] = before
    else:
        c.last[owner] = before
    c.before[place] = c.following[place] = NOBODY


@compiled
def _adopt_all(c: Children, owner: Array, places_: Array) -> None:
    for i in range(len(places_)):
        adopt(c, owner[i], places_[i])


@generator
def each(c: Children, owner: Int) -> Iterator[Int]:
    """The children of an owner, in order, in a kernel; the one that is given may be released."""
    place = c.first[owner]
    while place >= 0:
        following = c.following[place]
        yield place
        place = following


def in_order(c: Children, owners: Array) -> Array:
    """The places of the children of some owners, one owner after the other."""
    found = np.empty(len(c.following), np.int64)
    return found[: _in_order(c, owners, found)]


@compiled
def _in_order(c: Children, owners: Array, found: Array) -> Int:
    count = 0
    for k in range(len(owners)):
        place = c.first[owners[k]]
        while place >= 0:
            found[count] = place
            count += 1
            place = c.following[place]
    return count


def moved(places_: Array, kept: Array, room: int) -> Array:
    """Where rows are once only those at `kept` are there, in that order; NOBODY: nowhere. `room` is
    how many places there were."""
    number = np.full(room + 1, NOBODY)
    number[kept] = np.arange(len(kept))
    return number.take(places_)
