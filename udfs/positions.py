"""Positions: `ledger:entry`, two integers joined by a colon."""

from __future__ import annotations

import re

import numba
import numpy as np
import pyarrow as pa

from udfs.arrow import bytes_of, null_mask, offsets_of, plain

Array = np.ndarray
_COLON, _MINUS, _DIGIT_0, _DIGIT_9 = (ord(c) for c in ":-09")
_MAX_LONG = np.uint64(2**63 - 1)
_TENTH = np.uint64((2**63 - 1) // 10)


@numba.njit(cache=True, nogil=True)
def _integer(data: Array, p: int, end: int) -> tuple[bool, np.int64, int]:
    """Whether a signed 64-bit integer begins at p, the integer, and its end."""
    minus = p < end and data[p] == _MINUS
    if minus:
        p += 1
    first = p
    value = np.uint64(0)
    while p < end and data[p] >= _DIGIT_0 and data[p] <= _DIGIT_9:
        if value > _TENTH:
            return False, np.int64(0), p
        value = value * np.uint64(10) + np.uint64(data[p] - _DIGIT_0)
        if value > _MAX_LONG:
            return False, np.int64(0), p
        p += 1
    number = np.int64(value)
    return p > first, -number if minus else number, p


@numba.njit(cache=True, nogil=True)
def _parse(data: Array, offsets: Array, ledger: Array, entry: Array, ok: Array) -> None:
    for i in range(len(ok)):
        end = int(offsets[i + 1])
        good, first, p = _integer(data, int(offsets[i]), end)
        if not good or p >= end or data[p] != _COLON:
            continue
        good, second, p = _integer(data, p + 1, end)
        if good and p == end:
            ledger[i], entry[i], ok[i] = first, second, True


def parse_positions(array: pa.Array) -> tuple[Array, Array, Array]:
    """Ledger ids, entry ids (int64) and whether each string is two integers joined by a colon.

    Only the form is checked: negative ids are accepted. Invalid strings and nulls have ids 0.
    """
    strings = plain(array)
    n = len(strings)
    ledger, entry, ok = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.bool_)
    _parse(bytes_of(strings), offsets_of(strings), ledger, entry, ok)
    if strings.null_count:
        nulls = null_mask(strings)
        ledger[nulls], entry[nulls], ok[nulls] = 0, 0, False
    return ledger, entry, ok


_NUMBER = "(?:0|[1-9][0-9]{0,17}+)"
_RANGE = rf"{_NUMBER}:{_NUMBER}\.\.{_NUMBER}"
# Possessive: a million ranges leave no states behind.
_RANGES = re.compile(rf"{_RANGE}(?:,{_RANGE})*+")


def are_ranges(text: str) -> bool:
    """Whether a text is ranges of entries, `ledger:first..last` joined by commas; may be empty."""
    return not text or _RANGES.fullmatch(text) is not None
