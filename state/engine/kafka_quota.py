"""Kafka's quota arithmetic: token bucket and sampled rate of one entity.

Times are ms of the wall clock, bounds are units per second, all sums are IEEE doubles in Kafka's
order of operations. `read_tokens` is Kafka's own read, which refills the bucket; `tokens_at`
returns the same and changes nothing. What a unit is, a producer id, a byte, a percent or a
partition, is up to the job.

Worked example: bound 10, 10 samples of 1 s, so a burst of 100. Strict requests for 90 at one
instant: accepted with 10 tokens left, accepted with -80, rejected for 8000 ms.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from state.engine.kernel import Array, Int, Record, codes, compiled
from udfs.worlds import made_by_rules

STATS = ("last_event", "start_time")
LAST_EVENT, START_TIME = codes(2)
ENFORCEMENTS = ("strict", "permissive")
STRICT, PERMISSIVE = codes(2)
LARGEST = np.int64(2**63 - 1)
LEAST = np.int64(-(2**63))
LARGEST_INT = np.int64(2**31 - 1)
_TWO63 = 9.223372036854775808e18


@compiled
def round_half_up(x: float) -> Int:
    """The integer nearest to x, ties upwards, saturating at 64 bits; 0 for NaN."""
    if x != x:
        return np.int64(0)
    if x >= _TWO63:
        return LARGEST
    if x <= -_TWO63:
        return LEAST
    down = np.floor(x)
    # x + 0.5 would be inexact next to 0.5 and from 2**52 on; the difference is not
    return np.int64(down) + np.int64(x - down >= 0.5)


@compiled
def _ratio(a: float, b: float) -> float:
    """a / b, by IEEE rules for b = 0."""
    if b != 0.0:
        return a / b
    if a > 0.0:
        return np.inf
    return -np.inf if a < 0.0 else np.nan


@compiled
def reported_throttle(throttle_ms: int, wraps: bool) -> Int:
    """A 64-bit throttle time (ms) as 32 bits: wrapped (defect `Q1`), else at most 2**31 - 1."""
    if wraps:
        return np.int64(np.int32(throttle_ms))
    return min(np.int64(throttle_ms), LARGEST_INT)


@compiled
def burst_of(bound: float, samples: int, window_ms: int) -> float:
    """Capacity of the token bucket: samples * W * bound."""
    return samples * (window_ms / 1000.0) * bound


# Token bucket.


@compiled
def balance(
    tokens: float, refilled_ms: int, now: int, bound: float, samples: int, window_ms: int
) -> float:
    """What a bucket holds at `now` (units) that held `tokens` at `refilled_ms`."""
    grown = tokens + bound * ((now - refilled_ms) / 1000.0)
    return min(burst_of(bound, samples, window_ms), grown)


@compiled
def tokens_at(q: Record, now: int, bound: float, samples: int, window_ms: int) -> float:
    """The balance at `now` (units), refilled on a copy; 2**63 without a bound."""
    if bound != bound:
        return _TWO63
    return balance(q["tokens"], q["refilled_ms"], now, bound, samples, window_ms)


@compiled
def read_tokens(q: Record, now: int, bound: float, samples: int, window_ms: int) -> float:
    """Refill the bucket and return its balance (units); below 0 is a violation."""
    tokens = tokens_at(q, now, bound, samples, window_ms)
    if bound == bound:
        q["tokens"], q["refilled_ms"] = tokens, now
    return tokens


@compiled
def record_tokens(
    q: Record, value: float, now: int, bound: float, samples: int, window_ms: int
) -> None:
    """Refill the bucket and take `value` tokens from it, without a test."""
    if bound == bound:
        tokens = read_tokens(q, now, bound, samples, window_ms)
        q["tokens"] = min(burst_of(bound, samples, window_ms), tokens - value)


@compiled
def tokens_throttle(tokens: float, bound: float) -> Int:
    """Time (ms, 64 bits) until a negative balance is back at 0."""
    return round_half_up(_ratio(-tokens, bound) * 1000.0)


# Sampled rate.


@made_by_rules
class Samples(NamedTuple):
    """The samples of one sensor: the first `used` from place `at` on, in arrays of many sensors."""

    start: Array
    """ms"""
    last: Array
    """Last event (ms)."""
    total: Array
    at: Int
    used: Int
    current: Int


class Sampling(NamedTuple):
    """How a rate is sampled."""

    samples: Int
    window_ms: Int
    """Length W of a sample."""
    stat: Int
    """What expires a sample; place in STATS."""


@compiled
def _reset(s: Samples, i: int, now: int) -> None:
    s.start[i] = now
    s.last[i] = now
    s.total[i] = 0.0


@compiled
def _is_expired(s: Samples, i: int, now: int, how: Sampling) -> bool:
    """Whether a read at `now` starts a sample anew: after samples * W."""
    since = s.last[i] if how.stat == LAST_EVENT else s.start[i]
    return bool(now - since >= how.samples * how.window_ms)


@compiled
def next_sample(s: Samples, now: int, how: Sampling) -> Int:
    """Which sample takes what is recorded at `now`: the current one, or one that starts anew.

    A sample ends W after its start. A place of `used` is one that was not used before.
    """
    if s.used == 0:
        return np.int64(0)
    if now - s.start[s.at + s.current] < how.window_ms:
        return np.int64(s.current)
    most = how.samples + 1 if how.stat == LAST_EVENT else how.samples
    return np.int64((s.current + 1) % most)


@compiled
def add_sample(s: Samples, value: float, now: int, how: Sampling) -> tuple[Int, Int]:
    """Add `value` at `now`; returns how many samples are used, and which is current."""
    begins = s.used == 0 or now - s.start[s.at + s.current] >= how.window_ms
    place = next_sample(s, now, how)
    if begins:
        _reset(s, s.at + place, now)
    s.total[s.at + place] += value
    s.last[s.at + place] = now
    return max(np.int64(s.used), place + 1), place


@compiled
def sampled_rate(s: Samples, now: int, how: Sampling) -> tuple[float, Int]:
    """Rate (units per second) and the span it is taken over (ms, at least 1); changes nothing."""
    found, oldest = 0.0, np.int64(now)
    for i in range(s.at, s.at + s.used):
        expired = _is_expired(s, i, now, how)
        begin = np.int64(now) if expired else s.start[i]
        if not expired:
            found += s.total[i]
        if i == s.at or begin < oldest:
            oldest = begin
    return _rate_since(found, oldest, now, how)


@compiled
def read_rate(s: Samples, now: int, how: Sampling) -> tuple[float, Int]:
    """As `sampled_rate`; the samples that are found expired start anew."""
    found, oldest = 0.0, np.int64(now)
    for i in range(s.at, s.at + s.used):
        if _is_expired(s, i, now, how):
            _reset(s, i, now)
        begin = s.start[i]
        found += s.total[i]
        if i == s.at or begin < oldest:
            oldest = begin
    return _rate_since(found, oldest, now, how)


@compiled
def _rate_since(found: float, oldest: int, now: int, how: Sampling) -> tuple[float, Int]:
    """The rate of a sum whose oldest sample began at `oldest`, and its span."""
    samples, window_ms = how.samples, how.window_ms
    span = np.int64(now - oldest)
    # toward zero; the span is negative when the clock is behind
    full = span // window_ms if span >= 0 else -(-span // window_ms)
    if full < samples - 1:
        span += (samples - 1 - full) * window_ms
    span = max(span, np.int64(1))
    return found / (span / 1000.0), span


@compiled
def rate_throttle(rate: float, bound: float, span_ms: int) -> Int:
    """Time (ms, 64 bits) until a rate over a span (ms) is back at its bound."""
    return round_half_up(_ratio(rate - bound, bound) * span_ms)
