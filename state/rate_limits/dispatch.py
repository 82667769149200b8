"""Dispatch limits as a what-if: what another dispatch quota would have held back on a trace.

The resolution of a dispatch bucket is the period of its rate, so its tokens arrive together once
per period, strictly after it. Permits are the balance or 0; the quota is charged after sending. In
relative mode the rate is the last measured publish rate plus the configured one, and the bucket
follows it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from state.rate_limits.bucket import PER_TICK, SATURATING, build, charge, target_of
from state.rate_limits.layout import BUCKET, Array, Record, compiled

PUBLISH, DISPATCH = np.int64(0), np.int64(1)
UNLIMITED = np.int64(-1)


@dataclass(frozen=True)
class Quota:
    """Messages and bytes per period; -1 or 0 = no limit."""

    msgs: int
    size: int
    period_ns: int = 1_000_000_000
    relative: bool = False


@dataclass(frozen=True)
class Permits:
    """Per dispatch, before it was sent: messages and bytes allowed, -1 = unlimited."""

    msgs: Array
    size: Array

    @property
    def held(self) -> Array:
        """Number of dispatches that would have waited for the next period."""
        return (self.msgs == 0) | (self.size == 0)


@compiled
def _follow(b: Record, rate: int) -> None:
    """A dynamic rate: the capacity is the rate, the target one per cent of it."""
    b["rate"], b["capacity"], b["target"] = rate, rate, target_of(rate)


@compiled
def _permits(b: Record, now: int, period: int, version: int) -> int:
    return max(charge(b, np.int64(0), now, period, period, version), np.int64(0))


@compiled
def _send(b: Record, amount: int, now: int, period: int, version: int) -> None:
    """Charge without a verdict."""
    if version == PER_TICK:
        charge(b, amount, now, period, period, version)
    else:
        b["pending"] += amount


@compiled
def _judge(
    buckets: Array,
    kind: Array,
    mono: Array,
    messages: Array,
    size: Array,
    msgs: int,
    size_limit: int,
    period: int,
    relative: int,
    version: int,
    out_msgs: Array,
    out_size: Array,
) -> None:
    since = mono[0]
    published, written = np.int64(0), np.int64(0)
    for i in range(2):
        limit = msgs if i == 0 else size_limit
        if limit > 0:
            build(buckets[i], limit, limit, limit, since, period, period, version)
    n = 0
    for i in range(len(kind)):
        now = max(mono[i], since)
        if relative != 0 and now - since >= period:
            # what was published in the period that ended last; an empty one counts as nothing
            whole = (now - since) // period
            if whole > 1:
                published, written = np.int64(0), np.int64(0)
            if msgs > 0:
                _follow(buckets[0], published + msgs)
            if size_limit > 0:
                _follow(buckets[1], written + size_limit)
            published, written = np.int64(0), np.int64(0)
            since += whole * period
        if kind[i] == PUBLISH:
            published += messages[i]
            written += size[i]
            continue
        out_msgs[n], out_size[n] = UNLIMITED, UNLIMITED
        if msgs > 0:
            out_msgs[n] = _permits(buckets[0], now, period, version)
            _send(buckets[0], messages[i], now, period, version)
        if size_limit > 0:
            out_size[n] = _permits(buckets[1], now, period, version)
            _send(buckets[1], size[i], now, period, version)
        n += 1


def permits(
    kind: Array,
    mono_ns: Array,
    messages: Array,
    size: Array,
    quota: Quota,
    version: int = int(SATURATING),
) -> Permits:
    """Permits before every dispatch of one topic or subscription.

    All arrays are int64 of one length, in order of time: `kind` PUBLISH or DISPATCH (publishes
    matter in relative mode only), monotonic times (ns), messages and bytes.
    """
    count = int((kind == DISPATCH).sum())
    found = Permits(np.zeros(count, np.int64), np.zeros(count, np.int64))
    if len(kind):
        _judge(
            np.zeros(2, BUCKET),
            kind,
            mono_ns,
            messages,
            size,
            quota.msgs,
            quota.size,
            quota.period_ns,
            int(quota.relative),
            version,
            found.msgs,
            found.size,
        )
    return found
