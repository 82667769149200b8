"""Records as a kernel reads them: an array of rows with the contract's own column names.

A job declares the row (`state.engine.tables.StateRow`): columns of its records by their names, and
what it adds to them, such as the place of the broker. A rule then reads `r.ts_wall_ms`.
"""

from __future__ import annotations

import numba
import numpy as np

from state.engine.kernel import Array
from state.engine.records import Records, length
from state.engine.structs import words
from state.engine.tables import StateRow

_BLOCK = 64


def fed(row: type[StateRow], records: Records, **own: Array) -> Array:
    """The rows of some records, in their order; `own` are the fields that these do not have, or have
    otherwise, as integers."""
    found = np.empty(length(records), row.dtype)
    if len(found):
        into = words(found)
        given = [(i, name) for i, name in enumerate(row.fields) if name not in own]
        _lay(
            records.data,
            np.array([records.columns.index(name) for _, name in given], np.int64),
            np.array([i for i, _ in given], np.int64),
            into,
        )
        for name, column in own.items():
            into[:, list(row.fields).index(name)] = column
    return found


@numba.njit(cache=True, nogil=True)
def _lay(columns: Array, chosen: Array, places: Array, rows: Array) -> None:
    """Copy some columns into words of rows, block by block: all of them in one pass."""
    for begin in range(0, len(rows), _BLOCK):
        end = min(begin + _BLOCK, len(rows))
        for j in range(len(chosen)):
            for i in range(begin, end):
                rows[i, places[j]] = columns[chosen[j], i]
