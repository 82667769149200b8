"""A trend: a line is fitted to the hourly use of one limit and gives the use of later hours.

Arrays hold the highest use of each hour in the limit's own unit, the newest hour last; nan = no
rows. A fit sees its array and nothing later.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

Hours = NDArray[np.float64]
Places = NDArray[np.int64]
"""Hours after the newest one of a fit: 1 is the next."""
Fit = Callable[[Places], Hours]
HOURS_PER_DAY = 24
LEAST_VALUES = 12
"""Hours with rows that a trend needs, and hours of history."""
LEAST_POINTS = 3
POINTS = 48
"""Most points of a trend; of a longer history each is the highest use of a block of hours."""
BLOCKS = (1, 2, 4, 8, 24, 48)


def trend(used: Hours) -> Fit | None:
    """The line through the history whose slope is the median of all slopes between two points
    (Theil and Sen), and whose level the median of what that leaves: up to 29 % of the points may
    be anything. None with fewer than twelve hours of rows. Use is never below 0.

    1, 2, 3 ... 12 then 900 has a slope of 1.
    """
    there = np.flatnonzero(~np.isnan(used))
    if len(there) < LEAST_VALUES:
        return None
    place, value = _highest(used[there[0] :])
    if len(place) < LEAST_POINTS:
        return None
    place = place + there[0] - (len(used) - 1)
    first, second = _pairs(len(place))
    with np.errstate(over="ignore", invalid="ignore"):
        slope = np.median((value[second] - value[first]) / (place[second] - place[first]))
        level = np.median(value - slope * place)

    def later(ahead: Places) -> Hours:
        with np.errstate(over="ignore", invalid="ignore"):
            place: Hours = np.maximum(level + slope * ahead, 0.0)
            return place

    return later


def _highest(used: Hours) -> tuple[NDArray[np.int64], Hours]:
    """The highest use of each block of hours, and the hour that has it, counted from the first
    value; blocks without rows have none."""
    size = next((b for b in BLOCKS if len(used) <= b * POINTS), BLOCKS[-1])
    blocks = len(used) // size
    start = len(used) - blocks * size
    cut = used[start:].reshape(blocks, size)
    filled = np.where(np.isnan(cut), -np.inf, cut)
    within = np.argmax(filled, axis=1)
    kept = np.isfinite(filled[np.arange(blocks), within])
    place = start + np.arange(blocks) * size + within
    return place[kept], filled[np.arange(blocks), within][kept]


@cache
def _pairs(count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every two of so many points, the earlier first."""
    first, second = np.triu_indices(count, 1)
    return first, second
