"""Selects the entities that have their own series: of a million topics some hundreds.

An entity (a topic, a user, a connection ...) appears when it uses `share` of its quota or breaches
it, and disappears when it has done neither for `idle_ms` of event time. At most `top` have series
at a time: a newcomer takes the place of the lightest if it weighs more, and a breach weighs more
than any use below it. Every increment goes to exactly one series, that of its entity or `other`, so
no counter ever falls and the sum over all of them is the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import add

Key = tuple[str, ...]
OTHER = "other"


@dataclass(frozen=True)
class Bounds:
    """How many entities of a kind have series, how long after they last were near their quota or
    breached it (ms), from which use / limit on they are near it, and whether series name topics
    (the broker's `exposeTopicLevelMetricsInPrometheus`)."""

    top: int
    idle_ms: int
    share: float = 0.5
    shows_topics: bool = True


class Entities:
    """The entities of one kind and their counters."""

    def __init__(self, bounds: Bounds, counters: int) -> None:
        self._bounds = bounds
        self._counters = counters
        self._last_ms: dict[Key, int] = {}
        self._weight: dict[Key, tuple[float, ...]] = {}
        self._use: dict[Key, float] = {}
        self._own: dict[Key, list[float]] = {}
        self._others: dict[Key, list[float]] = {}

    def breach(
        self,
        at_ms: int,
        key: Key,
        amounts: Sequence[float],
        others: Key = (),
        weight: tuple[float, ...] = (1.0,),
    ) -> None:
        """Count a breach of `key`, the last in time order so far.

        `amounts` are what it adds to each counter. `others` is the key of the series that takes
        them if the entity has none. `weight` is its severity; weights add up and compare as
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

    def near(self, at_ms: int, key: Key, use: float) -> None:
        """Note that `key` is near its quota, or has breached it, without counting anything.

        `use` is its use / limit. It orders entities that have not breached.
        """
        if key not in self._last_ms:
            self._make_room(at_ms, key, use)
            if len(self._last_ms) >= self._bounds.top:
                return
            self._own.setdefault(key, [0.0] * self._counters)
        self._last_ms[key] = max(at_ms, self._last_ms.get(key, at_ms))
        self._use[key] = use

    def advance(self, now_ms: int | None) -> None:
        """Let the entities go that are idle at `now_ms`, the time that their table has reached."""
        if now_ms is None:
            return
        for key, last_ms in list(self._last_ms.items()):
            if last_ms < now_ms - self._bounds.idle_ms:
                self._leave(key)

    def __contains__(self, key: Key) -> bool:
        return key in self._last_ms

    def __len__(self) -> int:
        return len(self._last_ms)

    @property
    def hidden(self) -> int:
        """Entities that have breached and have no series now."""
        return len(self._weight.keys() - self._last_ms.keys())

    def counters(self) -> Iterator[tuple[Key, list[float]]]:
        """The counters of every entity that has series."""
        for key in self._last_ms:
            yield key, self._own[key]

    def others(self) -> Iterator[tuple[Key, list[float]]]:
        """The counters of the rest, by their `others` key."""
        yield from self._others.items()

    def _make_room(self, at_ms: int, key: Key, use: float = 0.0) -> None:
        """If every place is taken: let idle entities go, else the lightest, if it is lighter."""
        if len(self._last_ms) < self._bounds.top:
            return
        self.advance(at_ms)
        if len(self._last_ms) < self._bounds.top:
            return
        lightest = min(self._last_ms, key=lambda k: (*self._grade(k), self._last_ms[k], k))
        if self._grade(lightest) < (self._weight.get(key, ()), use):
            self._leave(lightest)

    def _grade(self, key: Key) -> tuple[tuple[float, ...], float]:
        """Breaches first, then use. An entity without breaches weighs less than any with some."""
        return self._weight.get(key, ()), self._use.get(key, 0.0)

    def _leave(self, key: Key) -> None:
        """An entity has no series any more. What it has counted stays for when it comes back."""
        del self._last_ms[key]
        self._use.pop(key, None)
        if key not in self._weight:
            del self._own[key]
