"""One publish limiter of section 4: two buckets, waiting producers, and when it counts as new."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.reference.bucket import Bucket


@dataclass
class Place:
    """A producer that waits; `number` tells the order of all marks of the key."""

    producer: Any
    culprit: str
    number: int


@dataclass
class Limiter:
    """Buckets are None where there is no limit or before the first use."""

    kind: str
    idle_ns: int
    rates: tuple[int, int] = (0, 0)
    buckets: list[Bucket | None] = field(default_factory=lambda: [None, None])
    built: bool = False
    used: int | None = None
    queue: list[Place] = field(default_factory=list)
    throttled_before: bool = False

    def _build(self, now: int) -> None:
        self.buckets = [Bucket(rate, now) if rate > 0 else None for rate in self.rates]
        self.built = True

    def _is_idle(self, now: int) -> bool:
        return self.used is not None and now - self.used >= self.idle_ns

    def use(self, now: int) -> None:
        """The first use builds both buckets; a bucket that is idle and full is new as well."""
        if not any(rate > 0 for rate in self.rates):
            return
        if not self.built:
            self._build(now)
        elif self._is_idle(now):
            self.buckets = [
                Bucket(b.rate, now) if b is not None and b.is_full(now) else b
                for b in self.buckets
            ]
        self.used = now

    def is_as_new(self, now: int) -> bool:
        """Nothing of it can matter any more."""
        full = all(b is None or b.is_full(now) for b in self.buckets)
        return not self.queue and self._is_idle(now) and full

    def change(self, rates: tuple[int, int], now: int, seen: bool) -> bool:
        """New limits; answers whether a release task is to run at once.

        `seen` = the topics of a limiter that was not built yet have been used lately.
        """
        rested = not self.queue and (self.is_as_new(now) if self.built else not seen)
        self.rates = rates
        if rested or not any(rate > 0 for rate in rates):
            self.built, self.buckets = False, [None, None]
        else:
            self._build(now)
            self.used = now
        return self.throttled_before and not rested

    def charge(self, messages: int, size: int, now: int) -> list[int | None]:
        """Charge both buckets; answers the balances."""
        self.use(now)
        return [
            b.take(k, now) if b is not None else None
            for b, k in zip(self.buckets, (messages, size), strict=True)
        ]

    def read(self, now: int) -> list[int | None]:
        """Balances as a release task reads them."""
        if self.built and self.queue:
            self.used = now
        return [b.take(0, now) if b is not None else None for b in self.buckets]

    def peek(self, now: int) -> list[int | None]:
        """Balances without touching the buckets."""
        return [b.peek(now) if b is not None else None for b in self.buckets]

    def pause(self, balances: list[int | None]) -> int:
        """The larger pause (ns) of the buckets at these balances."""
        pauses = [
            b.pause(balance)
            for b, balance in zip(self.buckets, balances, strict=True)
            if b is not None and balance is not None
        ]
        return max(pauses, default=0)
