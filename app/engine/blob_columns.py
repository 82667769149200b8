"""The columns of blobs, gathered from those of a block.

A module of its own: compiled code is compiled again when a source changes that its module imports.
"""

from __future__ import annotations

import numba
import numpy as np

from state.engine.records import NULL

Array = np.ndarray
NUMBER, TEXT, OWN, LATER = np.int64(0), np.int64(1), np.int64(2), np.int64(3)
"""Origins of a blob's column."""


@numba.njit(cache=True, nogil=True)
def gather(
    rows: Array,
    sources: Array,
    numbers: Array,
    codes: Array,
    present: Array,
    own: Array,
    out: Array,
) -> None:
    """Columns of a blob at some rows of a block; see `blobs.write`."""
    n = len(rows)
    for c in range(len(sources)):
        source, slot, more = sources[c]
        column = out[c]
        if source == NUMBER:
            values, bit = numbers[slot], np.uint64(more & 63)
            word = present[more >> 6]
            for i in range(n):
                here = word[rows[i]] >> bit & np.uint64(1)
                column[i] = values[rows[i]] if here != np.uint64(0) else NULL
        elif source == TEXT:
            places = codes[slot]
            for i in range(n):
                place = places[rows[i]]
                column[i] = place + more if place >= 0 else np.int64(-1)
        elif source == OWN:
            values = own[slot]
            for i in range(n):
                column[i] = values[rows[i]]
