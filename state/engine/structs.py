"""Struct arrays copied as bytes: numpy copies their fields one by one, in ten times the time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from state.engine.kernel import Array


def raw(array: Array) -> Array:
    """The elements without their fields: the same memory."""
    return array.view(f"V{array.itemsize}")


def copied(array: Array) -> Array:
    """A copy."""
    return raw(array).copy().view(array.dtype)


def picked(array: Array, rows: Array) -> Array:
    """A copy of the elements at these positions, or where a mask holds."""
    return raw(array)[rows].view(array.dtype)


def joined(arrays: Sequence[Array]) -> Array:
    """Arrays of one layout, one after the other; a single one is not copied."""
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate([raw(array) for array in arrays]).view(arrays[0].dtype)
