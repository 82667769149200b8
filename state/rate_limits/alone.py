"""Plays one publish limiter alone on a trace: what a limit would have throttled, and for how long.

The rules are those of `limiter`: a publish is throttled if its charge leaves a balance of 0 or
less. The first waiting producer schedules a release task, which releases all of them once the
bucket has its target. Only one of the two buckets has a limit. Limiters are independent of each
other, so a trace is charged as the job charges it, whatever other limits there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from state.rate_limits.bucket import (
    LARGEST,
    PERIOD_NS,
    RESOLUTION_NS,
    SATURATING,
    balance_at,
    build,
    charge,
    pause_of,
    read_for_pause,
)
from state.rate_limits.layout import BUCKET, NEVER, Array, Record, compiled
from state.rate_limits.limiter import release_due

USE, PUBLISH, CLOSE = np.int64(0), np.int64(1), np.int64(2)
"""Kinds of records: a producer of the limiter was created, a charge, a connection has closed."""
THROTTLED, PUBLISHES, PAUSES, PAUSED_NS, VICTIM_NS = range(5)
_COUNTS = 5


@dataclass(frozen=True)
class Rules:
    """Parameters of the job that affect a limiter."""

    version: int = int(SATURATING)
    """Index in `bucket.VERSIONS`."""
    positive: bool = False
    """Producers leave while the balance is above 0, not only from the target on."""
    idle_ns: int = int(LARGEST)


@dataclass(frozen=True)
class Trace:
    """Records of the limiters of one name; all arrays are int64 of one length but `starts`.

    Each limiter has the records from `starts[i]` to before `starts[i + 1]`, in judging order.
    """

    starts: Array
    kind: Array
    mono_ns: Array
    amount: Array
    """Messages or bytes of a publish."""
    cnx: Array
    """Connections as integers from 0."""
    others: Array
    """Topics on the connection that do not share the limiter."""
    end_ns: Array
    """End of the broker's history (monotonic clock); a pause that has not ended counts up to there.
    """

    @property
    def publishes(self) -> int:
        """Charges."""
        return int((self.kind == PUBLISH).sum())

    @property
    def total(self) -> float:
        """Messages or bytes of all publishes."""
        return float(self.amount[self.kind == PUBLISH].astype(np.float64).sum())


@dataclass(frozen=True)
class Effect:
    """The effects of a limit on a trace."""

    throttled: float
    """Messages or bytes of the publishes that left a balance of 0 or less."""
    publishes: int
    """Such publishes."""
    pauses: int
    """Pauses of connections."""
    paused_ns: float
    """Time of all pauses."""
    victim_ns: float
    """Time for which other topics were paused: the sum of each pause times `others` at its
    beginning.
    """


def effect(trace: Trace, limit: int, rules: Rules) -> Effect:
    """The effects of a limit per second (1 to 2**63 - 1), with full buckets at the beginning."""
    counts, _ = _played(trace, limit, rules)
    return Effect(
        float(counts[THROTTLED]),
        int(counts[PUBLISHES]),
        int(counts[PAUSES]),
        float(counts[PAUSED_NS]),
        float(counts[VICTIM_NS]),
    )


def beyond(trace: Trace, limit: int, rules: Rules) -> Array:
    """Which records are publishes that a limit throttles (bool); see `effect`."""
    _, found = _played(trace, limit, rules)
    return found


def _played(trace: Trace, limit: int, rules: Rules) -> tuple[Array, Array]:
    """The counts of a limit, and by record whether it is a throttled publish."""
    places = int(trace.cnx.max()) + 1 if len(trace.cnx) else 1
    counts = np.zeros(_COUNTS, np.float64)
    found = np.zeros(len(trace.cnx), np.bool_)
    _play(
        np.zeros(1, BUCKET),
        np.zeros(len(trace.cnx) + 1, np.int64),
        np.zeros(len(trace.cnx) + 1, np.int64),
        np.zeros(places, np.int64),
        np.zeros(places, np.int64),
        np.zeros(places, np.int64),
        trace.starts,
        trace.kind,
        trace.mono_ns,
        trace.amount,
        trace.cnx,
        trace.others,
        trace.end_ns,
        limit,
        int(rules.positive),
        rules.idle_ns,
        rules.version,
        counts,
        found,
    )
    return counts, found


@compiled
def _play(
    buckets: Array,
    timers: Array,
    held: Array,
    waits: Array,
    since: Array,
    beside: Array,
    starts: Array,
    kind: Array,
    mono: Array,
    amount: Array,
    cnx: Array,
    others: Array,
    end: Array,
    limit: int,
    positive: int,
    idle_ns: int,
    version: int,
    counts: Array,
    throttled: Array,
) -> None:
    """Play each limiter. `timers` (due times of release tasks), `held` (paused connections) and
    `throttled` have a place for every record; `waits`, `since` and `beside` one for every
    connection."""
    b = buckets[0]
    for s in range(len(starts) - 1):
        used, waiting, due, paused = NEVER, np.int64(0), np.int64(0), np.int64(0)
        for i in range(starts[s], starts[s + 1]):
            now, c = mono[i], cnx[i]
            while due > 0 and _earliest(timers, due) < now:
                used, waiting, due, paused = _run_timer(
                    b,
                    timers,
                    due,
                    held,
                    paused,
                    waits,
                    since,
                    beside,
                    used,
                    waiting,
                    positive,
                    version,
                    counts,
                )
            if kind[i] == CLOSE:
                if waits[c] > 0:
                    waiting -= waits[c]
                    _end_pause(waits, since, beside, c, now, counts)
                continue
            if used == NEVER or (
                version == SATURATING
                and now - used >= idle_ns
                and balance_at(b, now, PERIOD_NS, RESOLUTION_NS, version) >= b["capacity"]
            ):
                build(b, limit, limit, limit, now, PERIOD_NS, RESOLUTION_NS, version)
            used = now
            if kind[i] == USE:
                continue
            if charge(b, amount[i], now, PERIOD_NS, RESOLUTION_NS, version) > 0:
                continue
            throttled[i] = True
            counts[THROTTLED] += amount[i]
            counts[PUBLISHES] += 1
            if waits[c] == 0:
                counts[PAUSES] += 1
                since[c], beside[c], held[paused] = now, others[i], c
                paused += 1
            waits[c] += 1
            waiting += 1
            if waiting == 1:
                balance = read_for_pause(b, now, PERIOD_NS, RESOLUTION_NS, version)
                timers[due] = release_due(now, pause_of(b, balance, PERIOD_NS, version))
                due += 1
        stop = np.int64(end[starts[s + 1] - 1])
        while due > 0 and _earliest(timers, due) < stop:
            used, waiting, due, paused = _run_timer(
                b,
                timers,
                due,
                held,
                paused,
                waits,
                since,
                beside,
                used,
                waiting,
                positive,
                version,
                counts,
            )
        _end_pauses(held, paused, waits, since, beside, stop, counts)


@compiled
def _earliest(timers: Array, due: int) -> int:
    first = timers[0]
    for i in range(1, due):
        first = min(first, timers[i])
    return first


@compiled
def _run_timer(
    b: Record,
    timers: Array,
    due: int,
    held: Array,
    paused: int,
    waits: Array,
    since: Array,
    beside: Array,
    used: int,
    waiting: int,
    positive: int,
    version: int,
    counts: Array,
) -> tuple[int, int, int, int]:
    """Run the earliest release task. Returns when the limiter was used last, the number of waiting
    producers, and the numbers of tasks and of used elements of `held`.
    """
    first = 0
    for i in range(1, due):
        if timers[i] < timers[first]:
            first = i
    now = timers[first] + 1
    due -= 1
    timers[first] = timers[due]
    if waiting > 0:
        used = now
    balance = read_for_pause(b, now, PERIOD_NS, RESOLUTION_NS, version)
    pause = pause_of(b, balance, PERIOD_NS, version)
    if waiting > 0:
        if (balance > 0) if positive != 0 else (pause == 0):
            _end_pauses(held, paused, waits, since, beside, now, counts)
            waiting = paused = 0
        else:
            timers[due] = release_due(now, pause)
            due += 1
    return used, waiting, due, paused


@compiled
def _end_pauses(
    held: Array, paused: int, waits: Array, since: Array, beside: Array, now: int, counts: Array
) -> None:
    """Release all waiting producers, except those whose connection has closed."""
    for i in range(paused):
        if waits[held[i]] > 0:
            _end_pause(waits, since, beside, held[i], now, counts)


@compiled
def _end_pause(waits: Array, since: Array, beside: Array, c: int, now: int, counts: Array) -> None:
    counts[PAUSED_NS] += now - since[c]
    counts[VICTIM_NS] += float(now - since[c]) * beside[c]
    waits[c] = 0
