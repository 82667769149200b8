"""The token bucket of Pulsar's publish limiter (PIP-322), in the three versions of its releases.

`saturating` (4.2.4): the balance is always current; products are exact and stop at 2**63 - 1.
`wrapping` (4.0.8): the same, but products wrap at 64 bits. `per_tick` (4.0.0): the balance is
refreshed once per resolution and stale in between. Signed 64-bit integers; sums wrap, division
truncates. Times are nanoseconds of the broker's monotonic clock, rates are tokens per second.

Worked example: rate 1000, one batch of 5000 at time 0 leaves -4000; the target is one per cent of
the capacity, so the pause is (10 + 4000) / 1000 s = 4.01 s.
"""

from __future__ import annotations

import numpy as np

from state.rate_limits.layout import NEVER, Array, Int, Record, compiled

SATURATING, WRAPPING, PER_TICK = np.int64(0), np.int64(1), np.int64(2)
VERSIONS = ("saturating", "wrapping", "per_tick")
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
def wrapped_muldiv(a: int, b: int, c: int) -> Int:
    """a * b cut to 64 bits, then divided by c > 0 toward zero, as the older releases do."""
    product = np.int64(a) * np.int64(b)
    quotient = product // c
    if product < 0 and quotient * c != product:
        quotient += np.int64(1)
    return np.int64(quotient)


@compiled
def product_quotient(a: int, b: int, c: int, version: int) -> Int:
    """a * b / c by the arithmetic of a version."""
    return muldiv(a, b, c) if version == SATURATING else wrapped_muldiv(a, b, c)


@compiled
def target_of(capacity: int) -> Int:
    """Tokens a throttled bucket must hold again: one per cent of the capacity, truncated."""
    return np.int64(capacity * 0.01)


@compiled
def tick_target(rate: int, period: int, resolution: int) -> Int:
    """Tokens that a fixed-rate bucket of `per_tick` waits for: those of one resolution."""
    return max(wrapped_muldiv(resolution, rate, period), np.int64(1))


@compiled
def new_tokens(
    b: Record, now: int, period: int, resolution: int, version: int
) -> tuple[Int, Int, Int]:
    """Tokens that have come since the last refill, with the refill time and remainder after it."""
    last, remainder, rate = b["last_ns"], b["remainder_ns"], b["rate"]
    if version == PER_TICK:
        if last == 0:
            return np.int64(0), np.int64(now), remainder
    else:
        step = np.int64(resolution)
        if period // rate > resolution:
            step = np.int64(period // rate - remainder - 1)
        if now <= last + step or now == last:
            return np.int64(0), last, remainder
        if last == NEVER:
            return np.int64(0), np.int64(now), remainder
    duration = now - last + remainder
    new = product_quotient(duration, rate, period, version)
    rest = duration - product_quotient(new, period, rate, version)
    return new, np.int64(now), np.int64(max(rest, 0))


@compiled
def _is_new_tick(b: Record, now: int, resolution: int) -> bool:
    """Whether a call refreshes a `per_tick` bucket; a later tick is remembered."""
    tick = np.int64(now // resolution) if resolution != 0 else np.int64(0)
    if tick == 0:
        return True
    if tick > b["tick"]:
        b["tick"] = tick
        return True
    return False


@compiled
def refresh(b: Record, k: int, now: int, period: int, resolution: int) -> Int:
    """Bring a `per_tick` bucket up to now and take k tokens; returns the balance."""
    new, b["last_ns"], b["remainder_ns"] = new_tokens(b, now, period, resolution, PER_TICK)
    b["tokens"] = min(b["tokens"] + new, b["capacity"]) - (k + b["pending"])
    b["pending"] = 0
    return np.int64(b["tokens"])


@compiled
def charge(b: Record, k: int, now: int, period: int, resolution: int, version: int) -> Int:
    """Take k >= 0 tokens and return the balance of the verdict; 0 or less throttles.

    With k = 0 a reading. Raises ValueError for a negative k, as the class does.
    """
    if k < 0:
        raise ValueError("negative consumption")
    if version == PER_TICK:
        if _is_new_tick(b, now, resolution):
            return refresh(b, k, now, period, resolution)
        b["pending"] += k
        return np.int64(b["tokens"] - k)
    new, b["last_ns"], b["remainder_ns"] = new_tokens(b, now, period, resolution, version)
    if new <= 0:
        b["pending"] += k
        return np.int64(b["tokens"] - b["pending"])
    gained = new - b["pending"]
    b["pending"] = 0
    if gained != 0 or k != 0:
        b["tokens"] = min(b["tokens"] + gained, b["capacity"]) - k
    return np.int64(b["tokens"])


@compiled
def read_for_pause(b: Record, now: int, period: int, resolution: int, version: int) -> Int:
    """The balance that a pause is computed from; `per_tick` is refreshed for it."""
    if version == PER_TICK:
        _is_new_tick(b, now, resolution)  # seen, though this refresh does not depend on it
        return refresh(b, np.int64(0), now, period, resolution)
    return charge(b, np.int64(0), now, period, resolution, version)


@compiled
def balance_at(b: Record, now: int, period: int, resolution: int, version: int) -> Int:
    """The balance that `read_for_pause` would give, without touching the bucket."""
    new, _, _ = new_tokens(b, now, period, resolution, version)
    if version == PER_TICK:
        return np.int64(min(b["tokens"] + new, b["capacity"]) - b["pending"])
    if new <= 0:
        return np.int64(b["tokens"] - b["pending"])
    gained = new - b["pending"]
    if gained == 0:
        return np.int64(b["tokens"])
    return np.int64(min(b["tokens"] + gained, b["capacity"]))


@compiled
def pause_until(balance: int, need: int, rate: int, period: int, version: int) -> Int:
    """Time (ns) until a balance has grown to `need` tokens."""
    if balance >= need:
        return np.int64(0)
    short = np.int64(need - balance)
    if short < 0 and version == SATURATING:
        short = LARGEST
    return product_quotient(short, period, rate, version)


@compiled
def pause_of(b: Record, balance: int, period: int, version: int) -> Int:
    """Time (ns) until a bucket with this balance has its target, at least one token."""
    if version == PER_TICK:
        if balance > 0:
            return np.int64(0)
        return wrapped_muldiv(b["target"] - balance, period, b["rate"])
    return pause_until(balance, max(np.int64(1), b["target"]), b["rate"], period, version)


@compiled
def build(
    b: Record,
    rate: int,
    capacity: int,
    initial: int,
    now: int,
    period: int,
    resolution: int,
    version: int,
) -> None:
    """A new bucket; it is read once, which starts its clock."""
    b["rate"], b["capacity"], b["tokens"] = rate, capacity, initial
    b["remainder_ns"], b["pending"], b["tick"] = 0, 0, 0
    if version == PER_TICK:
        b["target"], b["last_ns"] = tick_target(rate, period, resolution), 0
    else:
        b["target"], b["last_ns"] = target_of(capacity), NEVER
    charge(b, np.int64(0), now, period, resolution, version)


@compiled
def remove(buckets: Array, i: int) -> None:
    """Remove the limit: rate 0 means that there is no bucket."""
    b = buckets[i]
    b["rate"], b["capacity"], b["tokens"], b["target"] = 0, 0, 0, 0
    b["last_ns"], b["remainder_ns"], b["pending"], b["tick"] = NEVER, 0, 0, 0
