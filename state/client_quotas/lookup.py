"""Elements of an array found by six words that identify them: an open-addressing table of places."""

from __future__ import annotations

import numpy as np

from state.client_quotas.layout import IDENTITY, NOBODY, Array, Int, compiled

_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


@compiled
def _mixed(h: Int, word: Int) -> Int:
    h = (h ^ np.uint64(word)) * _MIX
    return h ^ (h >> _SHIFT)


@compiled
def find(words: Array, table: Array, a: Int, b: Int, c: Int, d: Int, e: Int, f: Int) -> Int:
    """The place of the element with these words, -1 without one."""
    h = _mixed(_mixed(_mixed(np.uint64(a), c), d), e)
    at = np.int64(_mixed(_mixed(h, b), f) & np.uint64(len(table) - 1))
    while table[at] >= 0:
        i = table[at]
        if (
            words[i, 3] == d
            and words[i, 4] == e
            and words[i, 2] == c
            and words[i, 5] == f
            and words[i, 1] == b
            and words[i, 0] == a
        ):
            return np.int64(i)
        at = (at + 1) & (len(table) - 1)
    return NOBODY


@compiled
def enter(words: Array, table: Array, i: Int) -> None:
    """Index an element for `find`."""
    h = _mixed(_mixed(_mixed(np.uint64(words[i, 0]), words[i, 2]), words[i, 3]), words[i, 4])
    at = np.int64(_mixed(_mixed(h, words[i, 1]), words[i, 5]) & np.uint64(len(table) - 1))
    while table[at] >= 0:
        at = (at + 1) & (len(table) - 1)
    table[at] = i


@compiled
def enter_all(words: Array, table: Array, count: Int) -> None:
    """Index the first elements for `find`."""
    for i in range(count):
        enter(words, table, np.int64(i))


def table_for(elements: int) -> Array:
    """An empty table for so many elements."""
    size = 64
    while size < 2 * elements:
        size *= 2
    return np.full(size, -1, np.int32)


def words_of(array: Array) -> Array:
    """Elements as rows of words, of which the first `IDENTITY` identify each."""
    found: Array = array.view(np.int64).reshape(len(array), array.dtype.itemsize // 8)
    assert found.shape[1] >= IDENTITY
    return found
