"""Forecasts of a cursor from its last checks."""

from __future__ import annotations

import numpy as np

from state.backlog import layout as L
from state.backlog.ages import age_of, is_older, time_after
from state.backlog.layout import NOBODY, NULL, Array, Int, Record, World, compiled

PRECISELY = np.int64(1)

SHORTEST = np.int64(12)
"""A stretch of at most this many values is sorted one by one."""
LEAST_CHECKS = np.int64(3)
_NAN = np.nan


@compiled
def _sort(values: Array, low: Int, high: Int) -> None:
    """Sort a stretch (both ends included) by insertion."""
    for i in range(low + 1, high + 1):
        value, j = values[i], i
        while j > low and values[j - 1] > value:
            values[j] = values[j - 1]
            j -= 1
        values[j] = value


@compiled
def select(values: Array, count: Int, k: Int) -> Record:
    """The k-th smallest of the first values, which are put into another order: smaller ones before
    it, larger ones after."""
    low, high = np.int64(0), count - 1
    while high - low > SHORTEST:
        middle = values[(low + high) >> 1]
        i, j = low, high
        while i <= j:
            while values[i] < middle:
                i += 1
            while values[j] > middle:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            return values[k]
    _sort(values, low, high)
    return values[k]


@compiled
def median(values: Array, count: Int) -> float:
    """The median of the first values, which are put into another order."""
    upper = select(values, count, count >> 1)
    if count & 1:
        return upper
    lower = values[0]
    for i in range(1, count >> 1):
        lower = max(lower, values[i])
    return (lower + upper) / 2


@compiled
def remember_pass(w: World, key: Int, now: Int) -> None:
    """Enter the time of a check, and forget the oldest one."""
    last = w.passes.shape[1] - 1
    for i in range(last):
        w.passes[key, i] = w.passes[key, i + 1]
    w.passes[key, last] = now


@compiled
def remember(w: World, cursor: Int, size: Int, consumed: Int) -> bool:
    """Enter a check of a cursor, and forget the oldest one; returns whether its position is that of
    the one before."""
    c, last = w.store.cursors.rows[cursor], w.passes.shape[1] - 1
    for i in range(last):
        w.seen_bytes[cursor, i] = w.seen_bytes[cursor, i + 1]
        w.seen_consumed[cursor, i] = w.seen_consumed[cursor, i + 1]
    w.seen_bytes[cursor, last], w.seen_consumed[cursor, last] = size, consumed
    stands = c.before_ledger == c.ledger and c.before_entry == c.entry
    c.before_ledger, c.before_entry = c.ledger, c.entry
    c.checks = min(c.checks + 1, last + 1)
    return bool(stands)


@compiled
def consumption_rate(w: World, key: Int, cursor: Int, checks: Int) -> float:
    """What a cursor has consumed per s over the last checks."""
    last = w.passes.shape[1] - 1
    first = last + 1 - checks
    return (w.seen_consumed[cursor, last] - w.seen_consumed[cursor, first]) / (
        (w.passes[key, last] - w.passes[key, first]) / 1000.0
    )


@compiled
def growth_rate(w: World, key: Int, cursor: Int, checks: Int) -> float:
    """Median slope (bytes per s) between all pairs of the last checks."""
    end = w.passes.shape[1]
    begin, count, differs = end - checks, np.int64(0), False
    for i in range(begin + 1, end):
        differs = differs or w.seen_bytes[cursor, i] != w.seen_bytes[cursor, begin]
    if not differs:
        return 0.0
    for i in range(begin, end):
        for j in range(i + 1, end):
            w.slopes[count] = (w.seen_bytes[cursor, j] - w.seen_bytes[cursor, i]) / (
                (w.passes[key, j] - w.passes[key, i]) / 1000.0
            )
            count += 1
    return median(w.slopes, count)


@compiled
def time_to_limit(
    now: Int, size: Int, growth: float, limit: Int, limit_s: Int, timestamp: Int, stands: bool
) -> float:
    """Time (s) until a size (NULL: not known) that grows so much per s reaches its limit, below 0 for
    none, or an age since a timestamp (NULL: none) that of `limit_s`, unless the cursor moves; 0 where
    one of them has, NaN where none will."""
    sized, timed = limit >= 0 and size != NULL, limit_s > 0 and timestamp != NULL
    if (sized and size >= limit) or (timed and is_older(now, timestamp, limit_s)):
        return 0.0
    found = (limit - size) / growth if sized and growth > 0 else _NAN
    if timed and stands:
        left = max(float(limit_s - age_of(now, timestamp)), 0.0)
        if not found <= left:
            found = left
    return found


@compiled
def is_expiring(c: Record) -> bool:
    """Whether the messages of a cursor expire at the TTL of its topic."""
    return bool(c.durable != 0 and c.kind != L.DEDUPLICATION and c.kind != L.COMPACTION)


@compiled
def time_to_expiry(w: World, key: Int, cursor: Int, stands: bool, now: Int) -> float:
    """Time (s) until the oldest message of a cursor reaches the TTL, unless the cursor moves; 0
    where it has, NaN without a TTL or a known time.

    A broker reads the message's own time, whatever its quotas look at.
    """
    c, ttl_s = w.store.cursors.rows[cursor], w.quota[0].ttl_s
    if ttl_s <= 0 or c.after == 0 or not is_expiring(c):
        return _NAN
    timestamp, _ = time_after(w.store, key, c.ledger, c.entry, PRECISELY)
    return time_to_limit(now, NULL, _NAN, NOBODY, ttl_s, timestamp, stands)


@compiled
def forecast(w: World, key: Int, cursor: Int, stands: bool, timestamp: Int, row: Record) -> None:
    """Write the forecasts of a cursor into its row, after the check was recorded. `stands`: its
    mark-delete is that of the check before.
    """
    c, q = w.store.cursors.rows[cursor], w.quota[0]
    row.growth, row.drain, row.to_drain, row.to_quota = _NAN, _NAN, _NAN, _NAN
    if c.checks < LEAST_CHECKS:
        return
    growth = growth_rate(w, key, cursor, c.checks)
    row.growth, row.drain = growth, max(consumption_rate(w, key, cursor, c.checks), 0.0)
    if growth < 0:
        row.to_drain = c.bytes / -growth
    if c.durable == 0:
        return
    if c.after == 0:
        growth = 0.0
    # messages that expire before the limit never reach it
    expires = is_expiring(c) and q.ttl_s > 0 and q.ttl_s + q.expiry_s <= q.limit_s
    # at its snapshots this one moves, whatever waits
    waits = stands and c.kind != L.DEDUPLICATION and not expires
    row.to_quota = time_to_limit(
        row.at_ms, c.bytes, growth, q.limit_bytes, q.limit_s, timestamp, waits
    )
