"""Moves keys between shards: cuts a state into pieces by key, and joins pieces to a state.

A job declares which rows of its arrays belong to which rows (`Owned`), starting with the array of
its keys. Rows move with their owner, and fields with positions are renumbered. Data that belongs to
no key is in every piece and is merged when pieces are joined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from state.engine.codec import StateFormatError
from state.engine.names import Names
from udfs.hashing import combine_hashes, hash_strings, shard_of

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


def by_field(name: str, to: str, owner: str, **links: str) -> Owned:
    """An array with a field that has the position of a row's owner."""
    return Owned(name, to, lambda s: s.parts[name][owner], {owner: to, **links})


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


def places(keys: Any, key: Sequence[str], names: Names, shards: int) -> Array:
    """The shard of each key, of so many shards; `keys` has the columns of the key by name."""
    return shard_of(key_hashes((keys[name] for name in key), names), shards)


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


def require_distinct(job: str, keys: Array, key: Sequence[str], names: Names) -> None:
    """Raises StateFormatError if two keys are equal."""
    columns = np.stack([keys[name] for name in key])
    _, first, count = np.unique(columns, axis=1, return_index=True, return_counts=True)
    for at in first[count > 1].tolist():
        text = ", ".join(names.lookup(columns[:, at]).to_pylist())
        raise StateFormatError(f"{job}: two shards have a state of {text}")


def heirs(shard: int, was: int, now: int) -> list[int]:
    """The shards, of `now`, that inherit what a shard, of `was`, keeps for many keys, even without
    keys of it. Each new shard inherits from one old shard.
    """
    return list(range(shard, now, was))


def spread(
    keys: Array, waiting: Array, everywhere: Iterable[int]
) -> dict[int, tuple[Array, Array]]:
    """Keys and waiting records (bool) by their new shard, given the shard of each. Shards of
    `everywhere` are included even without any.
    """
    wanted = sorted({*np.unique(keys).tolist(), *np.unique(waiting).tolist(), *everywhere})
    return {shard: (keys == shard, waiting == shard) for shard in wanted}
