"""The words of compiled rules: functions over struct arrays without reference counting."""

from __future__ import annotations

from typing import Any

import numpy as np

from state.engine.compiling import compiled, inlined
from state.events import NULL

__all__ = ["NULL", "Array", "Int", "Record", "codes", "compiled", "inlined"]

Array = np.ndarray

Record = Any
"""An element of a structured array; indexing by field name reads and writes in place."""

Int = Any
"""An integer of Python or numpy; the compiler does not distinguish them."""


def codes(count: int) -> list[np.int64]:
    """Small constants as numpy integers: the compiler would specialise functions for every literal
    Python integer.
    """
    return [np.int64(i) for i in range(count)]
