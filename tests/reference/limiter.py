"""One publish limiter of section 4: two buckets, waiting producers, and when it counts as new."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.reference.bucket import Bucket
from tests.reference.connection import Mark

Balances = list[int | None]


@dataclass
class Place:
    """A producer that waits; `number` tells the order of all marks of the key."""

    mark: Mark
    number: int
    ended: bool = False
    """A release task would have released it, but the ends of its pauses are observed."""


@dataclass
class Limiter:
    """Buckets are None where there is no limit or before the first use."""

    kind: str
    name: str
    rates: tuple[int, int]
    bucket_kind: type[Bucket]
    idle_ns: int | None
    """Rest after which a full bucket is new; None where that never happens."""
    buckets: list[Bucket | None] = field(default_factory=lambda: [None, None])
    built: bool = False
    used: int | None = None
    queue: list[Place] = field(default_factory=list)
    throttled_before: bool = False
    tasks: int = 0
    """Release tasks that are scheduled."""

    @property
    def has_limit(self) -> bool:
        return any(rate > 0 for rate in self.rates)

    @property
    def has_bucket(self) -> bool:
        return any(b is not None for b in self.buckets)

    def _build(self, now: int) -> None:
        self.buckets = [self.bucket_kind(rate, now) if rate > 0 else None for rate in self.rates]
        self.built = True

    def _is_idle(self, now: int) -> bool:
        if self.idle_ns is None or self.used is None:
            return False
        return now - self.used >= self.idle_ns

    def use(self, now: int) -> None:
        """The first use builds both buckets; a bucket that is idle and full is new as well."""
        if not self.has_limit:
            return
        if not self.built:
            self._build(now)
        elif self._is_idle(now):
            self.buckets = [
                self.bucket_kind(b.rate, now) if b is not None and b.is_full(now) else b
                for b in self.buckets
            ]
        self.used = now

    def is_as_new(self, now: int) -> bool:
        """Nothing of it can matter any more."""
        return (
            not self.queue
            and self._is_idle(now)
            and all(b is None or b.is_full(now) for b in self.buckets)
        )

    def change(self, rates: tuple[int, int], now: int, seen: bool) -> bool:
        """New limits; answers whether a release task could find something to do.

        `seen` = the topics of a limiter that was not built yet have been used lately.
        """
        rested = not self.queue and (self.is_as_new(now) if self.built else not seen)
        self.rates = rates
        if rested or not self.has_limit:
            self.built, self.buckets = False, [None, None]
        else:
            self._build(now)
            self.used = now
        return self.throttled_before and not rested

    def charge(self, messages: int, size: int, now: int) -> Balances:
        """Charge both buckets; answers the numbers that the verdicts are taken from."""
        self.use(now)
        return [
            b.take(k, now) if b is not None else None
            for b, k in zip(self.buckets, (messages, size), strict=True)
        ]

    def read_for_pause(self, now: int) -> tuple[Balances, int]:
        """A reading that a pause is computed from: the balances and the larger pause (ns)."""
        if self.built and self.queue:
            self.used = now
        balances = [b.read_for_pause(now) if b is not None else None for b in self.buckets]
        return balances, self._pause(balances)

    def give(self, least: int | None, now: int) -> Balances:
        """Each bucket has at least so many tokens; None: what a release waits for."""
        return [
            b.give(max(1, b.target) if least is None else least, now) if b is not None else None
            for b in self.buckets
        ]

    def room(self, now: int) -> tuple[float, int]:
        """The smallest balance as a share of its rate, and which bucket it is of."""
        shares = [
            (float(b.peek(now)) / float(b.rate), i)
            for i, b in enumerate(self.buckets)
            if b is not None
        ]
        return min(shares)

    def read(self, now: int) -> Balances:
        """A reading without a pause."""
        return [b.take(0, now) if b is not None else None for b in self.buckets]

    def peek(self, now: int) -> tuple[Balances, int]:
        """What a reading for a pause would give; the buckets are not touched."""
        balances = [b.peek(now) if b is not None else None for b in self.buckets]
        return balances, self._pause(balances)

    def _pause(self, balances: Balances) -> int:
        pauses = [
            b.pause(balance)
            for b, balance in zip(self.buckets, balances, strict=True)
            if b is not None and balance is not None
        ]
        return max(pauses, default=0)
