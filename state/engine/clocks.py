"""Clocks of a broker's key: how far its records may be judged, and which records are late.

A moment of a key is a pair (run, monotonic ns). Runs count the known broker starts after the one
that the key is in. The scalars of a key are one element of its array `key`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from state.engine.kernel import NULL, Array, Int, Record, compiled
from state.engine.order import FIRST

CLOCK: Sequence[str | tuple[str, str]] = (
    ("has_clock", "|u1"),
    "clock_ns",
    "clock_wall_ms",
    "latest_ns",
    "latest_wall_ms",
    "plan_ms",
    "apart_ms",
    "other_ms",
    ("others", "|u1"),
    ("vouched", "|u1"),
    ("has_run", "|u1"),
    "run_wall_ms",
    ("run_has_seq", "|u1"),
    "run_seq",
)
"""Fields of a key with a clock of monotonic time, and of the distance between its two clocks."""
NEVER_SET = (
    *("clock_wall_ms", "latest_ns", "latest_wall_ms"),
    *("plan_ms", "apart_ms", "run_wall_ms"),
)
"""Those that are NULL in a new key."""

NS_PER_MS = 1_000_000
_NS_PER_MS = np.int64(NS_PER_MS)
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
ENDLESS_MS = 2**62
"""Further than any two clocks: what they are apart is not judged."""


class Moment(NamedTuple):
    """A time of a key; records before it may be judged."""

    run: int
    ns: int


@compiled
def wall_at(key: Array, mono: int, next_wall: int) -> Int:
    """Wall time of a moment after the key's last record, at most that of its next record (NULL =
    none).
    """
    k = key[0]
    if k["last_wall_ms"] == NULL:
        return NULL
    wall = k["last_wall_ms"] + (mono - k["last_ns"]) // _NS_PER_MS
    if next_wall != NULL and wall > next_wall:
        return next_wall
    return np.int64(wall)


@compiled
def window_clock(mono: int, wall: int) -> Int:
    """Milliseconds to which windows are aligned."""
    return np.int64(mono // _NS_PER_MS) if wall == NULL else np.int64(wall)


def mono_at(k: Record, wall: int) -> int:
    """Monotonic time of a wall time after the key's last record."""
    if wall == NULL or k["last_wall_ms"] == NULL:
        return int(k["last_ns"])
    return int(k["last_ns"]) + (wall - int(k["last_wall_ms"])) * NS_PER_MS


def _clamp(value: int) -> int:
    return max(_SMALLEST, min(value, _LARGEST))


def present(k: Record) -> Moment | None:
    """The key's clock at the end of its last batch."""
    return Moment(0, int(k["clock_ns"])) if k["has_clock"] else None


def by_stream(k: Record, run: Array, mono: Array, wall: Array, stream_ms: int) -> Moment | None:
    """The key's moment at a wall time of the stream, derived from its last record before that time.

    The arrays are those of its waiting records in order. None if no record has a wall time.
    """
    before = np.flatnonzero((wall != NULL) & (wall <= stream_ms))
    if len(before):
        last = int(before[-1])
        at = Moment(int(run[last]), int(mono[last]))
        passed = stream_ms - int(wall[last])
    elif k["any"] and k["last_wall_ms"] != NULL and k["last_wall_ms"] <= stream_ms:
        last = -1
        at = Moment(0, int(k["last_ns"]))
        passed = stream_ms - int(k["last_wall_ms"])
    else:
        return None
    ns = at.ns + passed * NS_PER_MS
    if last + 1 < len(wall) and run[last + 1] == at.run:
        ns = min(ns, int(mono[last + 1]))
    return Moment(at.run, _clamp(ns))


def by_records(k: Record, run: Array, mono: Array, wall: Array, lateness_ns: int) -> Moment:
    """The latest of a key's waiting records (at least one) less the allowed lateness.

    The lateness extends over a broker start: records of the old run may still come.
    """
    reached, latest, left = int(run[-1]), int(mono[-1]), lateness_ns
    while reached > 0:
        start = int(np.searchsorted(run, reached))
        started = int(mono[start])
        if latest - left >= started:
            break
        left -= latest - started
        reached -= 1
        if start > 0:
            old_ns, old_wall = int(mono[start - 1]), int(wall[start - 1])
        elif k["any"]:
            old_ns, old_wall = int(k["last_ns"]), int(k["last_wall_ms"])
        else:
            # nothing is known before the start; what the lateness still lets in comes before it
            return Moment(reached, int(FIRST))
        latest = old_ns
        if wall[start] == NULL or old_wall == NULL:
            left = lateness_ns
        else:
            latest += (int(wall[start]) - old_wall) * NS_PER_MS
    return Moment(reached, _clamp(latest - left))


def is_before(run: Array, time: Array, clock: Moment) -> Array:
    """Rows before a moment of their key (bool)."""
    return (run < clock.run) | ((run == clock.run) & (time < clock.ns))
