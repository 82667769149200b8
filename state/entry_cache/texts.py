"""Positions as records have them, `ledger:entry`, read from the bytes of names."""

from __future__ import annotations

import numpy as np

from state.entry_cache.layout import ONE, ZERO, Array, Int, compiled

_MINUS, _DIGIT, _COLON = np.uint8(ord("-")), np.uint8(ord("0")), np.uint8(ord(":"))
"""The colon follows the digits."""
_TEN, _MOST_DIGITS = np.int64(10), np.int64(18)


@compiled
def read_positions(data: Array, offsets: Array, ids: Array, found: Array) -> None:
    """Positions (`ledger:entry`) of texts by their names: whether it is one, ledger and entry.

    A number has 1 to 18 digits and may have a minus sign. `found` has zeros, shape (3, names).
    """
    for i in range(len(ids)):
        if ids[i] < 0:
            continue
        at, end = offsets[ids[i]], offsets[ids[i] + ONE]
        at, ledger = _number(data, at, end)
        if at < 0 or at == end or data[at] != _COLON:
            continue
        at, entry = _number(data, at + ONE, end)
        if at == end:
            found[0, i], found[1, i], found[2, i] = ONE, ledger, entry


@compiled
def _number(data: Array, at: Int, end: Int) -> tuple[Int, Int]:
    """Where the digits from a byte on end, and their number; -1 if they are none or too many."""
    sign = ONE
    if at < end and data[at] == _MINUS:
        sign, at = -ONE, at + ONE
    first, value = at, ZERO
    while at < end and data[at] >= _DIGIT and data[at] < _COLON:
        if at - first >= _MOST_DIGITS:
            return -ONE, ZERO
        value = value * _TEN + np.int64(data[at] - _DIGIT)
        at += ONE
    if at == first:
        return -ONE, ZERO
    return at, sign * value
