"""Token bucket of the specification, section 3.1 (`saturating`), with numbers of any size."""

from __future__ import annotations

SMALLEST, LARGEST = -(2**63), 2**63 - 1
PERIOD_NS = 1_000_000_000
RESOLUTION_NS = 16_000_000


def wrap(value: int) -> int:
    """A sum in signed 64 bits."""
    return (value - SMALLEST) % 2**64 + SMALLEST


def muldiv(a: int, b: int, c: int) -> int:
    """Exact product, division truncates, at most the largest 64-bit number."""
    if a < 0 or b < 0:
        raise ValueError("negative operand")
    return min(a * b // c, LARGEST)


class Bucket:
    """One bucket; reading it once starts its clock."""

    def __init__(
        self, rate: int, now: int, capacity: int | None = None, initial: int | None = None,
        period: int = PERIOD_NS, resolution: int = RESOLUTION_NS,
    ) -> None:
        self.rate = rate
        self.capacity = rate if capacity is None else capacity
        self.tokens = rate if initial is None else initial
        self.period, self.resolution = period, resolution
        self.last, self.remainder, self.pending = SMALLEST, 0, 0
        self.take(0, now)

    def _new_tokens(self, now: int) -> int:
        step = self.resolution
        if self.period // self.rate > self.resolution:
            step = self.period // self.rate - self.remainder - 1
        if not now > wrap(self.last + step) or now == self.last:
            return 0
        previous, self.last = self.last, now
        if previous == SMALLEST:
            return 0
        duration = wrap(now - previous + self.remainder)
        new = muldiv(duration, self.rate, self.period)
        rest = duration - muldiv(new, self.period, self.rate)
        self.remainder = rest if rest > 0 else 0
        return new

    def take(self, k: int, now: int) -> int:
        """Charge k and answer the balance; k = 0 reads."""
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

    def peek(self, now: int) -> int:
        """The balance that a reading would give; nothing changes."""
        kept = self.tokens, self.last, self.remainder, self.pending
        balance = self.take(0, now)
        self.tokens, self.last, self.remainder, self.pending = kept
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
        return muldiv(min(wanted - balance, LARGEST), self.period, self.rate)

    def is_full(self, now: int) -> bool:
        """A reading would find the capacity."""
        return self.peek(now) >= self.capacity
