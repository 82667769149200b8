"""Who is asked first, and for how long, where the time of a poll may not be enough for all."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any, TypeVar

from app.sources.kafka.offsets import Place

K = TypeVar("K", str, Place)


class Turns:
    """The order of requests: what was answered longest ago comes first."""

    def __init__(self) -> None:
        self._answered: dict[Any, int] = {}
        """By thing the poll that had its newest answer."""
        self._polls = 0

    def sorted(self, items: Collection[K]) -> list[K]:
        """The items in their turns."""
        answered = self._answered
        return sorted(sorted(items), key=lambda item: answered.get(item, 0))

    def end(self, answered: Collection[K], items: Collection[Any]) -> None:
        """Some have an answer of this poll, which ends; forget all but `items`."""
        self._polls += 1
        every = self._answered | dict.fromkeys(answered, self._polls)
        self._answered = {item: every[item] for item in items if item in every}


def share(deadline: float, stages: int) -> float:
    """The end of the next of some stages that share the time until a deadline."""
    now = time.monotonic()
    return now + (deadline - now) / stages
