"""Flags of topic names, a whole column at a time."""

from __future__ import annotations

import numba
import numpy as np
import pyarrow as pa

from udfs.arrow import bytes_of, offsets_of, plain
from udfs.topics import INCOMPLETE, NON_PERSISTENT, NOT_PERSISTENT, PERSISTENT

Array = np.ndarray

_SLASH = ord("/")
_SEPARATOR = np.frombuffer(b"://", np.uint8)
_SCHEMES = tuple(np.frombuffer(s.encode(), np.uint8) for s in (PERSISTENT, NON_PERSISTENT))


@numba.njit(cache=True, nogil=True)
def _starts_with(data: Array, start: int, end: int, text: Array) -> bool:
    if end - start < len(text):
        return False
    for i in range(len(text)):  # noqa: SIM110 - no generators in compiled code
        if data[start + i] != text[i]:
            return False
    return True


@numba.njit(cache=True, nogil=True)
def _classify(
    data: Array, offsets: Array, separator: Array, persistent: Array, other: Array, flags: Array
) -> None:
    for i in range(len(flags)):
        start, end = int(offsets[i]), int(offsets[i + 1])
        rest = start
        for p in range(start, end):
            if _starts_with(data, p, end, separator):
                rest = p + len(separator)
                scheme = p - start
                if scheme == len(other) and _starts_with(data, start, end, other):
                    flags[i] |= NOT_PERSISTENT
                elif scheme != len(persistent) or not _starts_with(data, start, end, persistent):
                    flags[i] |= INCOMPLETE
                break
        # tenant and namespace, neither empty, each followed by a slash; then at least one byte
        part = rest
        slashes = 0
        for p in range(rest, end):
            if data[p] == _SLASH:
                if p == part:
                    break
                slashes += 1
                part = p + 1
                if slashes == 2:
                    break
        if slashes < 2 or part >= end:
            flags[i] |= INCOMPLETE


def classify_topics(names: pa.Array) -> Array:
    """INCOMPLETE and NOT_PERSISTENT (uint8) of each name, as `split_topic` classifies it."""
    strings = plain(names)
    flags = np.zeros(len(strings), np.uint8)
    _classify(bytes_of(strings), offsets_of(strings), _SEPARATOR, *_SCHEMES, flags)
    return flags
