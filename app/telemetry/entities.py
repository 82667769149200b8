"""Which entities have series of their own, so that a fleet of a million topics has some hundreds.

An entity (a topic, a user, a connection ...) appears with its first breach and disappears when it
has not had one for `idle_ms` of event time. At most `top` have series at a time: a newcomer takes
the place of the lightest if it weighs more. Every increment goes to exactly one series, that
of its entity or `other`, so no counter ever falls and the sum over all of them is the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import add

Key = tuple[str, ...]
OTHER = "other"


@dataclass(frozen=True)
class Bounds:
    """How many entities of a kind have series, and how long after their last breach (ms)."""

    top: int
    idle_ms: int


class Entities:
    """The entities of one kind and their counters."""

    def __init__(self, bounds: Bounds, counters: int) -> None:
        self._bounds = bounds
        self._counters = counters
        self._last_ms: dict[Key, int] = {}
        self._weight: dict[Key, tuple[float, ...]] = {}
        self._own: dict[Key, list[float]] = {}
        self._others: dict[Key, list[float]] = {}

    def breach(
        self, at_ms: int, key: Key, amounts: Sequence[float], others: Key = (),
        weight: tuple[float, ...] = (1.0,),
    ) -> None:
        """Count a breach of `key`, the last in time order so far.

        `amounts` are what it adds to each counter. `others` is the key of the series that takes
        them if the entity has none. `weight` says how grave it is; weights add up and compare as
        tuples do.
        """
        before = self._weight.get(key, (0.0,) * len(weight))
        self._weight[key] = tuple(map(add, before, weight))
        if key not in self._last_ms:
            self._make_room(at_ms, key)
        if key in self._last_ms or len(self._last_ms) < self._bounds.top:
            self._last_ms[key] = max(at_ms, self._last_ms.get(key, at_ms))
            counters = self._own.setdefault(key, [0.0] * self._counters)
        else:
            counters = self._others.setdefault(others, [0.0] * self._counters)
        for index, amount in enumerate(amounts):
            counters[index] += amount

    def advance(self, now_ms: int | None) -> None:
        """Let the entities go that are idle at `now_ms`, the time that their table has reached."""
        if now_ms is None:
            return
        for key, last_ms in list(self._last_ms.items()):
            if last_ms < now_ms - self._bounds.idle_ms:
                del self._last_ms[key]

    def __contains__(self, key: Key) -> bool:
        return key in self._last_ms

    def __len__(self) -> int:
        return len(self._last_ms)

    @property
    def hidden(self) -> int:
        """Entities that have breached and have no series now."""
        return len(self._weight) - len(self._last_ms)

    def counters(self) -> Iterator[tuple[Key, list[float]]]:
        """The counters of every entity that has series."""
        for key in self._last_ms:
            yield key, self._own[key]

    def others(self) -> Iterator[tuple[Key, list[float]]]:
        """The counters of the rest, by their `others` key."""
        yield from self._others.items()

    def _make_room(self, at_ms: int, key: Key) -> None:
        """If every place is taken: let idle entities go, else the lightest, if it is lighter."""
        if len(self._last_ms) < self._bounds.top:
            return
        self.advance(at_ms)
        if len(self._last_ms) < self._bounds.top:
            return
        lightest = min(self._last_ms, key=lambda k: (self._weight[k], self._last_ms[k], k))
        if self._weight[lightest] < self._weight[key]:
            del self._last_ms[lightest]
