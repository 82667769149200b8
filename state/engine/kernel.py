"""How the rules of a job are compiled: functions over struct arrays without reference counting."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

Array = np.ndarray
compiled = numba.njit(cache=True, nogil=True, _nrt=False)
"""Compiles a function that only reads and writes the arrays that it is given.

numba's reference counting is off: counting every array of a World at every call would take six
times as long as the rules themselves. Therefore a compiled function must not create arrays.
"""
Record = Any
"""An element of a structured array; indexing by field name reads and writes in place."""

Int = Any
"""An integer of Python or numpy; the compiler does not distinguish them."""

NULL = np.int64(-(2**63))
"""Null of 64-bit columns that cannot have it as a value."""


def codes(count: int) -> list[np.int64]:
    """Small constants as numpy integers: the compiler would specialise functions for every literal
    Python integer.
    """
    return [np.int64(i) for i in range(count)]
