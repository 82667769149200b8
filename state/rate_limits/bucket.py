"""The token bucket of Pulsar's publish limiter (PIP-322), version `saturating`.

Signed 64-bit integers; products are exact and stop at 2**63 - 1; division truncates. Times are
nanoseconds of the broker's monotonic clock, rates are tokens per second.

Worked example: rate 1000, one batch of 5000 at time 0 leaves -4000; the target is one per cent of
the capacity, so the pause is (10 + 4000) / 1000 s = 4.01 s.
"""

from __future__ import annotations

import numpy as np

from state.rate_limits.layout import NEVER, Array, Int, Record, compiled

PERIOD_NS = 1_000_000_000
RESOLUTION_NS = 16_000_000
LARGEST = np.int64(2**63 - 1)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ONE = np.uint64(1)


@compiled
def muldiv(a: int, b: int, c: int) -> Int:
    """a * b // c for a, b >= 0 and c > 0 with an exact product, at most 2**63 - 1."""
    if a == 0 or b == 0:
        return np.int64(0)
    if a <= LARGEST // b:
        return np.int64((a * b) // c)
    ua, ub, uc = np.uint64(a), np.uint64(b), np.uint64(c)
    # the 128-bit product, high and low
    a1, a0 = ua >> _HALF, ua & _LOW
    b1, b0 = ub >> _HALF, ub & _LOW
    low = a0 * b0
    mid = a1 * b0 + (low >> _HALF)
    mid2 = a0 * b1 + (mid & _LOW)
    high = a1 * b1 + (mid >> _HALF) + (mid2 >> _HALF)
    low = (mid2 << _HALF) | (low & _LOW)
    if high >= uc:
        return LARGEST
    # long division, bit by bit: only products beyond 64 bits come here
    quotient, rest = np.uint64(0), high
    for i in range(64):
        carry = rest >> np.uint64(63)
        rest = (rest << _ONE) | ((low >> np.uint64(63 - i)) & _ONE)
        quotient = quotient << _ONE
        if carry != np.uint64(0) or rest >= uc:
            rest = rest - uc
            quotient |= _ONE
    if quotient > np.uint64(LARGEST):
        return LARGEST
    return np.int64(quotient)


@compiled
def target_of(capacity: int) -> Int:
    """Tokens a throttled bucket must hold again: one per cent of the capacity, truncated."""
    return np.int64(capacity * 0.01)


@compiled
def new_tokens(b: Record, now: int, period: int, resolution: int) -> tuple[Int, Int, Int]:
    """Tokens that have come since the last refill, with the refill time and remainder after it."""
    last, remainder, rate = b["last_ns"], b["remainder_ns"], b["rate"]
    step = np.int64(resolution)
    if period // rate > resolution:
        step = np.int64(period // rate - remainder - 1)
    if now <= last + step or now == last:
        return np.int64(0), last, remainder
    if last == NEVER:
        return np.int64(0), np.int64(now), remainder
    duration = now - last + remainder
    new = muldiv(duration, rate, period)
    rest = duration - muldiv(new, period, rate)
    return new, np.int64(now), np.int64(max(rest, 0))


@compiled
def charge(b: Record, k: int, now: int, period: int, resolution: int) -> Int:
    """Take k >= 0 tokens and answer the balance; a balance of 0 or less throttles.

    Raises ValueError for a negative k, as the class does.
    """
    if k < 0:
        raise ValueError("negative consumption")
    new, b["last_ns"], b["remainder_ns"] = new_tokens(b, now, period, resolution)
    if new <= 0:
        b["pending"] += k
        return np.int64(b["tokens"] - b["pending"])
    gained = new - b["pending"]
    b["pending"] = 0
    if gained != 0 or k != 0:
        b["tokens"] = min(b["tokens"] + gained, b["capacity"]) - k
    return np.int64(b["tokens"])


@compiled
def balance_at(b: Record, now: int, period: int, resolution: int) -> Int:
    """The balance that a reading would give, without making it."""
    new, _, _ = new_tokens(b, now, period, resolution)
    if new <= 0:
        return np.int64(b["tokens"] - b["pending"])
    gained = new - b["pending"]
    if gained == 0:
        return np.int64(b["tokens"])
    return np.int64(min(b["tokens"] + gained, b["capacity"]))


@compiled
def pause_until(balance: int, need: int, rate: int, period: int) -> Int:
    """Time (ns) until a balance has grown to `need` tokens."""
    if balance >= need:
        return np.int64(0)
    short = np.int64(need - balance)
    if short < 0:
        short = LARGEST
    return muldiv(short, period, rate)


@compiled
def pause_of(b: Record, balance: int, period: int) -> Int:
    """Time (ns) until a bucket that stands at `balance` has its target, at least one token."""
    return pause_until(balance, max(np.int64(1), b["target"]), b["rate"], period)


@compiled
def build(
    b: Record, rate: int, capacity: int, initial: int, now: int, period: int, resolution: int
) -> None:
    """A new bucket; it is read once, which starts its clock."""
    b["rate"], b["capacity"], b["tokens"] = rate, capacity, initial
    b["target"] = target_of(capacity)
    b["last_ns"], b["remainder_ns"], b["pending"] = NEVER, 0, 0
    charge(b, np.int64(0), now, period, resolution)


@compiled
def remove(buckets: Array, i: int) -> None:
    """No limit: rate 0 means that the bucket is not there."""
    b = buckets[i]
    b["rate"], b["capacity"], b["tokens"], b["target"] = 0, 0, 0, 0
    b["last_ns"], b["remainder_ns"], b["pending"] = NEVER, 0, 0
