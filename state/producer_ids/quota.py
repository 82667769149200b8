"""Kafka's quota arithmetic: token bucket and sampled rate of one principal.

A record of `quota_layout` holds both; one of zeros is a sensor that has seen nothing. The rate is
kept under the token bucket too, because it is reported. Times are ms of the wall clock, bounds are
ids per second, all sums are IEEE doubles in Kafka's order of operations.

`read_…` are Kafka's own reads, which change what they read (a refill, samples that start anew);
`…_at` answer the same and change nothing.

Worked example: bound 10, 10 samples of 1 s, so a burst of 100. Strict requests for 90 at one
instant: accepted with 10 tokens left, accepted with -80, rejected for 8000 ms.
"""

from __future__ import annotations

import numpy as np

from state.kernel import Array, Int, Record, codes, compiled

MATHS = ("token_bucket", "sampled_rate")
TOKEN_BUCKET, SAMPLED_RATE = codes(2)
STATS = ("last_event", "start_time")
LAST_EVENT, START_TIME = codes(2)
ENFORCEMENTS = ("strict", "permissive")
STRICT, PERMISSIVE = codes(2)
UNITS = ("window", "second")
PER_WINDOW, PER_SECOND = codes(2)
VERDICTS = ("counted", "throttled", "rejected")
COUNTED, THROTTLED, REJECTED = codes(3)
SOURCES = ("user", "default_user", "none")
FROM_USER, FROM_DEFAULT_USER, FROM_NOWHERE = codes(3)
UNLIMITED = {"long": float(2**63 - 1), "int": float(2**31 - 1)}
"""Bound of a user without a quota, by `unlimited_default`."""
NO_BOUND = float("nan")
"""No quota at all: nothing is violated, and a token bucket is neither charged nor refilled."""
IDLE_MS = 3_600_000
LARGEST = np.int64(2**63 - 1)
LEAST = np.int64(-(2**63))
LARGEST_INT = np.int64(2**31 - 1)
_TWO63 = 9.223372036854775808e18


def slots_of(samples: int) -> int:
    """Slots that a record has for its samples: at least samples + 1.

    Few sizes: each is another layout, for which the functions are compiled anew.
    """
    slots = 12
    while slots < samples + 1:
        slots *= 4
    return slots


def quota_layout(samples: int) -> np.dtype:
    """The record of one principal for a number of samples (`producer.id.quota.window.num`)."""
    slots = slots_of(samples)
    return np.dtype(
        [
            ("tokens", "<f8"), ("refilled_ms", "<i8"), ("recorded_ms", "<i8"),
            ("used", "<i8"), ("current", "<i8"),
            ("start_ms", "<i8", (slots,)), ("last_ms", "<i8", (slots,)),
            ("total", "<f8", (slots,)),
        ],
        align=True,
    )


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
def remaining_throttle(throttle_ms: int, decided_ms: int, now: int) -> Int:
    """What is left at `now` of a throttle time (ms) that was decided at `decided_ms`."""
    return max(np.int64(throttle_ms - (now - decided_ms)), np.int64(0))


@compiled
def bound_in_force(own: float, default: float, unlimited: float) -> tuple[float, Int]:
    """Bound of a user and its source (place in SOURCES): own, default user's, unlimited.

    NO_BOUND for one that is not set.
    """
    if own == own:
        return own, FROM_USER
    if default == default:
        return default, FROM_DEFAULT_USER
    return unlimited, FROM_NOWHERE


@compiled
def bound_per_second(bound: float, window_ms: int, unit: int) -> float:
    """A configured bound, per window or per second (place in UNITS), as ids per second."""
    return bound / (window_ms / 1000.0) if unit == PER_WINDOW else bound


@compiled
def burst_of(bound: float, samples: int, window_ms: int) -> float:
    """Capacity of the token bucket (ids): samples * W * bound."""
    return samples * (window_ms / 1000.0) * bound


@compiled
def largest_in_window(bound: float, samples: int, window_ms: int) -> float:
    """The largest value allowed in one quota window: bound * (samples - 1) * W."""
    return bound * (samples - 1) * (window_ms / 1000.0)


# Token bucket.


@compiled
def tokens_at(q: Record, now: int, bound: float, samples: int, window_ms: int) -> float:
    """The balance at `now` (ids), refilled on a copy; 2**63 without a bound."""
    if bound != bound:
        return _TWO63
    tokens = q["tokens"] + bound * ((now - q["refilled_ms"]) / 1000.0)
    return min(burst_of(bound, samples, window_ms), tokens)


@compiled
def read_tokens(q: Record, now: int, bound: float, samples: int, window_ms: int) -> float:
    """Refill the bucket and answer its balance (ids); below 0 is a violation."""
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


@compiled
def _reset(q: Record, i: int, now: int) -> None:
    q["start_ms"][i] = now
    q["last_ms"][i] = now
    q["total"][i] = 0.0


@compiled
def _is_expired(q: Record, i: int, now: int, age: int, stat: int) -> bool:
    """Whether a read at `now` starts a sample anew; `age` = samples * W in ms."""
    since = q["last_ms"][i] if stat == LAST_EVENT else q["start_ms"][i]
    return bool(now - since >= age)


@compiled
def record_sample(
    q: Record, value: float, now: int, samples: int, window_ms: int, stat: int
) -> None:
    """Add `value` to the sample of `now`; a sample ends W after its start."""
    if q["used"] == 0:
        q["used"], q["current"] = 1, 0
        _reset(q, np.int64(0), now)
    elif now - q["start_ms"][q["current"]] >= window_ms:
        slots = samples + 1 if stat == LAST_EVENT else samples
        q["current"] = (q["current"] + 1) % slots
        q["used"] = max(q["used"], q["current"] + 1)
        _reset(q, q["current"], now)
    i = q["current"]
    q["total"][i] += value
    q["last_ms"][i] = now


@compiled
def rate_at(
    q: Record, now: int, samples: int, window_ms: int, stat: int
) -> tuple[float, Int]:
    """Rate (ids per second) and the span it is taken over (ms, at least 1), on a copy."""
    age = samples * window_ms
    total, oldest = 0.0, np.int64(now)
    for i in range(q["used"]):
        expired = _is_expired(q, i, now, age, stat)
        start = np.int64(now) if expired else q["start_ms"][i]
        if not expired:
            total += q["total"][i]
        if i == 0 or start < oldest:
            oldest = start
    span = np.int64(now - oldest)
    # toward zero; the span is negative when the clock is behind
    full = span // window_ms if span >= 0 else -(-span // window_ms)
    if full < samples - 1:
        span += (samples - 1 - full) * window_ms
    span = max(span, np.int64(1))
    return total / (span / 1000.0), span


@compiled
def read_rate(
    q: Record, now: int, samples: int, window_ms: int, stat: int
) -> tuple[float, Int]:
    """Rate (ids per second) and its span (ms); samples that have expired start anew at `now`."""
    if q["used"] == 0:
        q["used"], q["current"] = 1, 0
        _reset(q, np.int64(0), now)
    age = samples * window_ms
    for i in range(q["used"]):
        if _is_expired(q, i, now, age, stat):
            _reset(q, i, now)
    return rate_at(q, now, samples, window_ms, stat)


@compiled
def rate_throttle(rate: float, bound: float, span_ms: int) -> Int:
    """Time (ms, 64 bits) until a rate over a span (ms) is back at its bound."""
    return round_half_up(_ratio(rate - bound, bound) * span_ms)


# Both.


@compiled
def violation(
    q: Record, now: int, bound: float, samples: int, window_ms: int, math: int, stat: int
) -> tuple[bool, Int]:
    """Test the quota as Kafka does, which reads it: whether it is violated, and for how long (ms).

    `math` and `stat` are places in MATHS and STATS. The time is the 64-bit one, 0 if not violated.
    """
    if math == TOKEN_BUCKET:
        tokens = read_tokens(q, now, bound, samples, window_ms)
        if tokens < 0.0:
            return True, tokens_throttle(tokens, bound)
        return False, np.int64(0)
    rate, span = read_rate(q, now, samples, window_ms, stat)
    if rate > bound:
        return True, rate_throttle(rate, bound, span)
    return False, np.int64(0)


@compiled
def record(
    q: Record, value: float, now: int, bound: float, samples: int, window_ms: int, math: int,
    stat: int,
) -> None:
    """Charge the quota without a test; the rate is kept under either arithmetic."""
    record_sample(q, value, now, samples, window_ms, stat)
    if math == TOKEN_BUCKET:
        record_tokens(q, value, now, bound, samples, window_ms)
    q["recorded_ms"] = now


@compiled
def charge(
    q: Record, value: float, now: int, bound: float, samples: int, window_ms: int, math: int,
    stat: int, enforcement: int,
) -> tuple[Int, Int]:
    """Decide on `value` new ids: verdict (place in VERDICTS) and throttle time (ms, 64 bits).

    Strict: test, then charge; what is rejected is not charged. Permissive: charge, then test.
    """
    if enforcement == STRICT:
        violated, throttle_ms = violation(q, now, bound, samples, window_ms, math, stat)
        if violated:
            return REJECTED, throttle_ms
        record(q, value, now, bound, samples, window_ms, math, stat)
        return COUNTED, np.int64(0)
    record(q, value, now, bound, samples, window_ms, math, stat)
    violated, throttle_ms = violation(q, now, bound, samples, window_ms, math, stat)
    return (THROTTLED if violated else COUNTED), throttle_ms


@compiled
def is_idle(q: Record, now: int) -> bool:
    """Whether Kafka would have dropped a sensor: its last record is more than 3600 s ago."""
    return bool(now - q["recorded_ms"] > IDLE_MS)


@compiled
def forget(quotas: Array, i: int) -> None:
    """Make quota i that of a principal which has seen nothing."""
    q = quotas[i]
    q["tokens"] = 0.0
    q["refilled_ms"], q["recorded_ms"], q["used"], q["current"] = 0, 0, 0, 0
    for j in range(q["start_ms"].size):
        _reset(q, j, np.int64(0))
