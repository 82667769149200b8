"""Token buckets of the specification, section 3, with numbers of any size: one class per value of
`tokenbucket`."""

from __future__ import annotations

SMALLEST, LARGEST = -(2**63), 2**63 - 1
PERIOD_NS = 1_000_000_000
RESOLUTION_NS = 16_000_000


def wrap(value: int) -> int:
    """A sum in signed 64 bits."""
    return (value - SMALLEST) % 2**64 + SMALLEST


def divide(a: int, b: int) -> int:
    """Division that truncates toward zero."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def muldiv(a: int, b: int, c: int) -> int:
    """Exact product, division truncates, at most the largest 64-bit number."""
    if a < 0 or b < 0:
        raise ValueError("negative operand")
    return min(a * b // c, LARGEST)


def wrapping_muldiv(a: int, b: int, c: int) -> int:
    """The product is cut to 64 bits, then divided."""
    return divide(wrap(a * b), c)


class Bucket:
    """`saturating`; reading a new bucket once starts its clock."""

    never = SMALLEST

    def __init__(
        self,
        rate: int,
        now: int,
        capacity: int | None = None,
        initial: int | None = None,
        period: int = PERIOD_NS,
        resolution: int = RESOLUTION_NS,
    ) -> None:
        self.rate = rate
        self.capacity = rate if capacity is None else capacity
        self.tokens = rate if initial is None else initial
        self.period, self.resolution = period, resolution
        self.last, self.remainder, self.pending = self.never, 0, 0
        self.take(0, now)

    def _muldiv(self, a: int, b: int, c: int) -> int:
        return muldiv(a, b, c)

    def _new_tokens(self, now: int) -> int:
        step = self.resolution
        if self.period // self.rate > self.resolution:
            step = self.period // self.rate - self.remainder - 1
        if not now > wrap(self.last + step) or now == self.last:
            return 0
        return self._move_to(now)

    def _move_to(self, now: int) -> int:
        """Move the clock of the bucket; answers the tokens of the time that has passed."""
        previous, self.last = self.last, now
        if previous == self.never:
            return 0
        duration = wrap(now - previous + self.remainder)
        self.remainder = 0
        new = self._muldiv(duration, self.rate, self.period)
        rest = wrap(duration - self._muldiv(new, self.period, self.rate))
        self.remainder = rest if rest > 0 else 0
        return new

    def take(self, k: int, now: int) -> int:
        """Charge k and answer the number that the verdict is taken from; k = 0 reads."""
        if k < 0:
            raise ValueError("negative consumption")
        new = self._new_tokens(now)
        if new <= 0:
            self.pending = wrap(self.pending + k)
            return wrap(self.tokens - self.pending)
        d = wrap(new - self.pending)
        self.pending = 0
        if d != 0 or k != 0:
            self.tokens = wrap(min(wrap(self.tokens + d), self.capacity) - k)
        return self.tokens

    def postpone(self, k: int, now: int) -> None:
        """Charge without a verdict: reads no clock."""
        if k < 0:
            raise ValueError("negative consumption")
        self.pending = wrap(self.pending + k)

    def read_for_pause(self, now: int) -> int:
        """The balance that a pause is computed from."""
        return self.take(0, now)

    def peek(self, now: int) -> int:
        """The balance that a pause would be computed from; nothing changes."""
        kept = dict(self.__dict__)
        balance = self.read_for_pause(now)
        self.__dict__.update(kept)
        return balance

    @property
    def target(self) -> int:
        """One per cent of the capacity, as a double cut to a whole number."""
        return int(float(self.capacity) * 0.01)

    def pause(self, balance: int, need: int | None = None) -> int:
        """Time (ns) until `need` tokens (default: the target, at least one) are there."""
        wanted = max(1, self.target) if need is None else need
        if balance >= wanted:
            return 0
        return self._muldiv(self._missing(wanted, balance), self.period, self.rate)

    def _missing(self, wanted: int, balance: int) -> int:
        return min(wanted - balance, LARGEST)

    def give(self, least: int, now: int) -> int:
        """The broker has found at least so many tokens: what a reading lacks is added."""
        balance = self.read_for_pause(now)
        if balance >= least:
            return balance
        self.tokens = wrap(self.tokens + wrap(least - balance))
        return least

    def is_full(self, now: int) -> bool:
        """A reading would find the capacity."""
        return self.peek(now) >= self.capacity


class WrappingBucket(Bucket):
    """`wrapping`: as `saturating`, but products and differences wrap at 64 bits."""

    def _muldiv(self, a: int, b: int, c: int) -> int:
        return wrapping_muldiv(a, b, c)

    def _missing(self, wanted: int, balance: int) -> int:
        return wrap(wanted - balance)


class TickBucket(WrappingBucket):
    """`per_tick`: refreshed once per tick of the resolution, stale in between."""

    never = 0

    def __init__(
        self,
        rate: int,
        now: int,
        capacity: int | None = None,
        initial: int | None = None,
        period: int = PERIOD_NS,
        resolution: int = RESOLUTION_NS,
    ) -> None:
        self.latest_tick = 0
        super().__init__(rate, now, capacity, initial, period, resolution)

    def _is_due(self, now: int) -> bool:
        """The tick is 0, or later than any seen before."""
        tick = divide(now, self.resolution) if self.resolution != 0 else 0
        if tick > self.latest_tick:
            self.latest_tick = tick
            return True
        return tick == 0

    def _refresh(self, k: int, now: int) -> int:
        new = self._move_to(now)
        consumed = wrap(k + self.pending)
        self.pending = 0
        self.tokens = wrap(min(wrap(self.tokens + new), self.capacity) - consumed)
        return self.tokens

    def take(self, k: int, now: int) -> int:
        """Without a refresh the verdict ignores what is pending."""
        if k < 0:
            raise ValueError("negative consumption")
        if self._is_due(now):
            return self._refresh(k, now)
        self.pending = wrap(self.pending + k)
        return wrap(self.tokens - k)

    def postpone(self, k: int, now: int) -> None:
        """A charge without a verdict is a call like any other."""
        self.take(k, now)

    def read_for_pause(self, now: int) -> int:
        """A forced refresh."""
        self._is_due(now)
        return self._refresh(0, now)

    @property
    def target(self) -> int:
        """The tokens of one tick, at least one."""
        return max(self._muldiv(self.resolution, self.rate, self.period), 1)

    def pause(self, balance: int, need: int | None = None) -> int:
        """Only a balance that is not above 0 pauses."""
        if balance > 0:
            return 0
        wanted = self.target if need is None else need
        return self._muldiv(self._missing(wanted, balance), self.period, self.rate)


BUCKETS: dict[str, type[Bucket]] = {
    "saturating": Bucket,
    "wrapping": WrappingBucket,
    "per_tick": TickBucket,
}
"""By value of `tokenbucket`."""
