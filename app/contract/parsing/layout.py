"""The place of each column of the event contract in the arrays of a parsed block."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from state.events import COLUMNS

TEXT, LONG, SHORT, FLAG, BINARY, TEXTS, NO_COLUMN = range(7)
"""Kinds of columns; NO_COLUMN is the kind of keys without a column."""

_KINDS = {
    pa.string(): TEXT,
    pa.int64(): LONG,
    pa.int32(): SHORT,
    pa.bool_(): FLAG,
    pa.binary(): BINARY,
    pa.list_(pa.string()): TEXTS,
}

NAMES: tuple[str, ...] = tuple(c.name for c in COLUMNS)
INDEX: dict[str, int] = {name: i for i, name in enumerate(NAMES)}
COLUMN_COUNT = len(COLUMNS)
WORDS = -(-COLUMN_COUNT // 64)
"""Words of a set of columns: column c has bit c % 64 of word c // 64."""

COLUMN_KIND = np.array([*(_KINDS[c.type] for c in COLUMNS), NO_COLUMN], np.int64)
_IS_TEXT = COLUMN_KIND == TEXT
_IS_NUMBER = np.isin(COLUMN_KIND, (LONG, SHORT, FLAG))
TEXT_SLOTS = int(_IS_TEXT.sum())
NUMBER_SLOTS = int(_IS_NUMBER.sum())
COLUMN_SLOT = np.where(_IS_TEXT, np.cumsum(_IS_TEXT) - 1, np.cumsum(_IS_NUMBER) - 1)
"""Row of a column in the array of its kind: codes of text, or numbers."""


def slot(name: str) -> int:
    """Row of a text or number column in its array."""
    return int(COLUMN_SLOT[INDEX[name]])


def bit(name: str) -> tuple[int, np.uint64]:
    """The word of a column in the bit sets of a row, and its bit there."""
    word, place = divmod(INDEX[name], 64)
    return word, np.uint64(1 << place)


def bits(names: Iterable[str]) -> tuple[np.uint64, ...]:
    """The bits of several columns, word by word."""
    whole = sum(1 << INDEX[name] for name in set(names))
    return words_of(whole)


def words_of(mask: int) -> tuple[np.uint64, ...]:
    """The words of a set of columns that is given as one number."""
    return tuple(np.uint64(mask >> 64 * word & 2**64 - 1) for word in range(WORDS))


def names_of(words: Iterable[int]) -> str:
    """The columns of a bit set, joined by commas in the order of the contract."""
    mask = sum(int(bits) << 64 * word for word, bits in enumerate(words))
    return ",".join(name for i, name in enumerate(NAMES) if mask >> i & 1)
