"""Tells whether one publish or a storm decides a limit, and what would be enough without it.

A storm is what a name publishes in minutes with more than ten times its median minute, if they are
in one or two stretches: what comes more often is its habit. `shop/orders` publishes 150 messages a
minute and 15,000 in one: that minute is a storm, and so is the next with 2,700.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from app.jobs.rate_limits.whatif.history import Rate
from app.jobs.rate_limits.whatif.search import smallest
from state.rate_limits.alone import Rules, Trace

FAR = 10
"""A minute of a storm has more than so many times the median of the minutes with publishes."""
LEAST_MINUTES = 5
"""Minutes with publishes that a median needs."""
APART = 10
"""Minutes between two stretches of a storm."""
MOST_STRETCHES = 2
PART = 2 / 3
"""What decides a limit is something without which at most this part of it is enough."""
ONE_PUBLISH, STORM = "one publish", "storm"


class Deciding(NamedTuple):
    """What decides a limit, and the smallest limit without it (per second)."""

    by: str
    without: int


def deciding(
    traces: Mapping[Rate, Trace],
    minutes: np.ndarray,
    alone: Mapping[Rate, int],
    share: float,
    rules: Rules,
) -> dict[Rate, Deciding]:
    """What decides the smallest limit of each rate `alone`, where one publish or a storm does.
    `minutes` are those of the records of each trace, -1 = no publish, or at no known time."""
    stormy = np.any([storm(minutes, traces[rate].amount) for rate in alone], axis=0)
    decided: dict[Rate, Deciding] = {}
    for rate, limit in alone.items():
        amount = traces[rate].amount
        largest = np.arange(len(amount)) == np.argmax(amount)
        for by, left_out in ((ONE_PUBLISH, largest), (STORM, stormy)):
            # a limit falls by no more than what is left out
            if amount[left_out].sum(dtype=float) < (1 - PART) * limit:
                continue
            rest = traces[rate]._replace(amount=np.where(left_out, 0, amount))
            without = smallest(rest, share, rules)
            if without is not None and without <= PART * limit:
                decided[rate] = Deciding(by, without)
                break
    return decided


def storm(minutes: np.ndarray, amount: np.ndarray) -> np.ndarray:
    """Which records are publishes of a storm (bool)."""
    published = minutes >= 0
    values, index = np.unique(minutes[published], return_inverse=True)
    stormy = np.zeros(len(minutes), np.bool_)
    if len(values) < LEAST_MINUTES:
        return stormy
    used = np.bincount(index, weights=amount[published].astype(float))
    far = used > FAR * np.median(used)
    if np.sum(np.diff(values[far]) > APART) < MOST_STRETCHES:
        stormy[published] = far[index]
    return stormy
