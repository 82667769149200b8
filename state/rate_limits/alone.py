"""Plays one publish limiter alone on a trace: what a limit would have throttled, and for how long.

The rules are those of `limiter`: a publish is throttled if its charge leaves a balance of 0 or
less. The first waiting producer schedules a release task, which releases all of them once the
bucket has its target. Only one of the two buckets has a limit. Limiters are independent of each
other, so a trace is charged as the job charges it, whatever other limits there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

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
from state.rate_limits.layout import BUCKET, NEVER, Array, Int, compiled
from state.rate_limits.limiter import release_due

USE, PUBLISH, CLOSE = np.int64(0), np.int64(1), np.int64(2)
"""Kinds of records: a producer of the limiter was created, a charge, a connection has closed."""
THROTTLED, PUBLISHES, PAUSES, PAUSED_NS, VICTIM_NS = range(5)
_COUNTS = 5


class Rules(NamedTuple):
    """Parameters of the job that affect a limiter."""

    version: int = int(SATURATING)
    """Index in `bucket.VERSIONS`."""
    positive: bool = False
    """Producers leave while the balance is above 0, not only from the target on."""
    idle_ns: int = int(LARGEST)


class Trace(NamedTuple):
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
    room = _Room(
        np.zeros(1, BUCKET),
        np.zeros(len(trace.cnx) + 1, np.int64),
        np.zeros(len(trace.cnx) + 1, np.int64),
        np.zeros(places, np.int64),
        np.zeros(places, np.int64),
        np.zeros(places, np.int64),
        counts,
        found,
    )
    _play(room, trace, limit, rules)
    return counts, found


class _Room(NamedTuple):
    """Memory of one limiter at a time, and the results of all."""

    buckets: Array
    """One."""
    timers: Array
    """Due times of release tasks; has a place for every record, as `held` has."""
    held: Array
    """Paused connections."""
    waits: Array
    """Waiting producers of each connection, as `since` and `beside` by connection."""
    since: Array
    """Begin of the pause."""
    beside: Array
    """Other topics at the begin of the pause."""
    counts: Array
    throttled: Array
    """By record, whether it is a throttled publish."""


class _Queue(NamedTuple):
    """The queue of a limiter."""

    used_ns: Int
    """Last use of the limiter."""
    waiting: Int
    """Producers."""
    tasks: Int
    """Elements of `timers` in use."""
    paused: Int
    """Elements of `held` in use."""


@compiled
def _play(room: _Room, trace: Trace, limit: int, rules: Rules) -> None:
    buckets, timers, held, waits, since, beside, counts, throttled = room
    starts, kind, mono, amount, cnx, others, end = trace
    b, version, idle_ns, zero = buckets[0], rules.version, rules.idle_ns, np.int64(0)
    for s in range(len(starts) - 1):
        used, waiting, tasks, paused = NEVER, zero, zero, zero
        for i in range(starts[s], starts[s + 1]):
            now, c = mono[i], cnx[i]
            while tasks > 0 and _earliest(timers, tasks) < now:
                queue = _Queue(used, waiting, tasks, paused)
                used, waiting, tasks, paused = _run_timer(room, queue, rules)
            if kind[i] == CLOSE:
                if waits[c] > 0:
                    waiting -= waits[c]
                    _end_pause(room, c, now)
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
                timers[tasks] = release_due(now, pause_of(b, balance, PERIOD_NS, version))
                tasks += 1
        stop = np.int64(end[starts[s + 1] - 1])
        while tasks > 0 and _earliest(timers, tasks) < stop:
            queue = _Queue(used, waiting, tasks, paused)
            used, waiting, tasks, paused = _run_timer(room, queue, rules)
        _end_pauses(room, paused, stop)


@compiled
def _earliest(timers: Array, tasks: int) -> int:
    first = timers[0]
    for i in range(1, tasks):
        first = min(first, timers[i])
    return first


@compiled
def _run_timer(room: _Room, queue: _Queue, rules: Rules) -> _Queue:
    """Run the earliest release task; returns the queue behind it."""
    b, timers = room.buckets[0], room.timers
    used, waiting, tasks, paused = queue
    first = 0
    for i in range(1, tasks):
        if timers[i] < timers[first]:
            first = i
    now = timers[first] + 1
    tasks -= 1
    timers[first] = timers[tasks]
    balance = read_for_pause(b, now, PERIOD_NS, RESOLUTION_NS, rules.version)
    if waiting > 0:
        used, pause = now, pause_of(b, balance, PERIOD_NS, rules.version)
        if (balance > 0) if rules.positive else (pause == 0):
            _end_pauses(room, paused, now)
            waiting = paused = np.int64(0)
        else:
            timers[tasks] = release_due(now, pause)
            tasks += 1
    return _Queue(used, waiting, tasks, paused)


@compiled
def _end_pauses(room: _Room, paused: int, now: int) -> None:
    """Release all waiting producers, except those whose connection has closed."""
    for i in range(paused):
        if room.waits[room.held[i]] > 0:
            _end_pause(room, room.held[i], now)


@compiled
def _end_pause(room: _Room, c: int, now: int) -> None:
    passed = now - room.since[c]
    room.counts[PAUSED_NS] += passed
    room.counts[VICTIM_NS] += float(passed) * room.beside[c]
    room.waits[c] = 0
