"""Who is asked first, and for how long, where the time of a poll may not be enough for all."""

from __future__ import annotations

import time
from collections.abc import Collection, Hashable
from typing import Any, TypeVar

K = TypeVar("K", bound=Hashable)


class Turns:
    """The order of requests: what was answered longest ago comes first."""

    def __init__(self) -> None:
        self._answered: dict[Any, int] = {}
        """By thing the poll that had its newest answer."""
        self.polls = 0

    def of(self, item: Hashable) -> int:
        """The number of the poll that had its newest answer; 0 for none."""
        return self._answered.get(item, 0)

    def sorted(self, items: Collection[K]) -> list[K]:
        """The items in their turns."""
        ordered: list[Any] = sorted(items)
        return sorted(ordered, key=self.of)

    def end(self, answered: Collection[Any], items: Collection[Any]) -> None:
        """Some have an answer of this poll, which ends; forget all but `items`."""
        self.polls += 1
        every = self._answered | dict.fromkeys(answered, self.polls)
        self._answered = {item: every[item] for item in items if item in every}


def share(deadline: float, stages: int) -> float:
    """The end of the next of some stages that share the time until a deadline."""
    now = time.monotonic()
    return now + (deadline - now) / stages
