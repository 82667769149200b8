"""Arrays of a state whose rows belong to rows of another array: taken apart with their owners, and
put together.

A job declares what belongs to what (`Owned`), starting with the array of its keys. Rows go with
their owner, and fields with positions are renumbered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from state.engine.names import Names
from udfs.hashing import combine_hashes, hash_strings

Array = np.ndarray
Parts = Mapping[str, Array]


@dataclass(frozen=True)
class Owned:
    """An array whose rows belong to rows of another array, which is declared before it."""

    part: str
    to: str
    """Name of the owners' array."""
    owner: Callable[[Any], Array]
    """Function of a shard: the position of each row's owner."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Fields with positions in other arrays (negative: none), and these arrays."""
    axis: int = 0
    """1 if the rows are columns of the array."""


def by_field(name: str, to: str, owner: str) -> Owned:
    """An array with a field that has the position of a row's owner."""
    return Owned(name, to, lambda s: s.parts[name][owner], {owner: to})


def by_count(name: str, to: str, count: Callable[[Any], Array], axis: int = 0) -> Owned:
    """An array whose rows are sorted by owner; `count` of a shard returns the number of rows of
    each owner.
    """

    def owner(s: Any) -> Array:
        counts = count(s)
        return np.repeat(np.arange(len(counts)), counts)

    return Owned(name, to, owner, axis=axis)


def beside(name: str, to: str, axis: int = 0) -> Owned:
    """An array with one row for each owner."""
    return Owned(name, to, lambda s: np.arange(s.parts[name].shape[axis]), axis=axis)


def key_hashes(columns: Iterable[Array], names: Names) -> Array:
    """Hashes of keys, by which the router chooses shards; the key columns are integers of names."""
    return combine_hashes(*(hash_strings(names.lookup(column)) for column in columns))


def cut(s: Any, first: str, owned: Sequence[Owned], chosen: Array) -> dict[str, Array]:
    """Some rows of a shard's array `first`, in its order, and everything that belongs to them.

    `chosen` marks the rows (bool).
    """
    parts: Parts = s.parts
    taken = {first: chosen}
    for one in owned:
        taken[one.part] = taken[one.to][one.owner(s)]
    found = {first: parts[first][chosen]}
    for one in owned:
        rows = np.compress(taken[one.part], parts[one.part], axis=one.axis)
        for name, target in one.links.items():
            number = np.append(np.cumsum(taken[target]) - 1, -1)
            rows[name] = np.where(rows[name] < 0, rows[name], number[rows[name]])
        found[one.part] = rows
    return found


def join(pieces: Sequence[Parts], first: str, owned: Sequence[Owned]) -> dict[str, Array]:
    """The arrays of several pieces, one after the other."""
    axes = {first: 0, **{one.part: one.axis for one in owned}}
    found = {
        name: np.concatenate([piece[name] for piece in pieces], axis=axis)
        for name, axis in axes.items()
    }
    for one in owned:
        mine = [len(piece[one.part]) for piece in pieces] if one.links else []
        for name, target in one.links.items():
            lengths = [piece[target].shape[axes[target]] for piece in pieces]
            before = np.repeat(np.cumsum(lengths) - lengths, mine)
            values = found[one.part][name]
            found[one.part][name] = np.where(values < 0, values, values + before)
    return found
