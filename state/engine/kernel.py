"""How the rules of a job are compiled: functions over struct arrays, without reference counting."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

Array = np.ndarray
compiled = numba.njit(cache=True, nogil=True, _nrt=False)
"""For functions that only read and write the arrays they are given.

Without numba's reference counting, which would count every array of a World at every call: six
times the time of the rules themselves. So nothing below may create an array.
"""
Record = Any
"""One element of a structured array; indexing by field name reads and writes in place."""

Int = Any
"""An integer of Python or of numpy: one and the same to the compiler."""

NULL = np.int64(-(2**63))
"""The null of 64-bit columns that cannot hold it."""


def codes(count: int) -> list[np.int64]:
    """Small constants; as Python integers each would make the compiler copy what it is given to."""
    return [np.int64(i) for i in range(count)]
