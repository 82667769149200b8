"""Which records move no clock: what a clock of somebody else's cannot vouch for.

A micro-batch has the time at which the engine planned it, the same for every repetition. A record
dated further ahead of it than the machines' clocks may differ waits until the stream has come that
far, and so does, in a catch-up, one that lies far ahead of most of its neighbours. Neither moves
the clock of a key or of the stream, so a wrong clock costs its own records alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from state.engine.clocks import ENDLESS_MS
from state.engine.kernel import NULL

Array = np.ndarray
PLAN = "plan_ms"
"""Column of a source and, once it is taken off, key of the metadata of a batch: the time (ms since
the epoch) at which the engine planned the micro-batch."""
WAITS = "waits"
"""Key of the metadata of a batch whose records move no clock of a key."""
LATEST_MS = 253_402_300_799_999
"""9999-12-31: later times have no day, and do not move the stream's clock."""


@dataclass(frozen=True)
class ClockLimits:
    """How far from each other the clocks of a fleet may be (ms)."""

    max_future_ms: int = 3_600_000
    """A record further after the plan than this is refused."""
    clock_skew_ms: int = 10_000
    """A record further after the plan than this moves no clock."""
    max_jump_ms: int = 3_600_000
    """A record further after most of its neighbours in a partition than this moves none."""


NEAR = 16
"""Neighbours on either side."""
_NONE = np.zeros(0, np.int64)
UNBOUND = ClockLimits(ENDLESS_MS, ENDLESS_MS, ENDLESS_MS)
"""For records whose times no run has judged."""


def stamped(batch: pa.RecordBatch, plan_ms: int) -> pa.RecordBatch:
    """The batch with the time of its plan."""
    kept = batch.schema.metadata or {}
    return batch.replace_schema_metadata({**kept, PLAN: str(plan_ms)})


def plan_of(batch: pa.RecordBatch) -> int | None:
    """The time (ms) at which a batch was planned; None for one that no engine planned."""
    metadata: Mapping[bytes, bytes] = batch.schema.metadata or {}
    found = metadata.get(PLAN.encode())
    return None if found is None else int(found)


def waiting(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, so that its records wait until the clocks of their keys have come to them: they
    are beside a source that may be behind them."""
    kept = batch.schema.metadata or {}
    return batch.replace_schema_metadata({**kept, WAITS: ""})


def waits(batch: pa.RecordBatch) -> bool:
    """Whether the records of a batch do."""
    return WAITS.encode() in (batch.schema.metadata or {})


def is_ahead(wall: Array, plan_ms: Array | int, skew_ms: int) -> Array:
    """Which times (ms, NULL without one) lie further after the plan than clocks may differ."""
    return np.asarray((wall != NULL) & (wall > np.asarray(plan_ms) + np.int64(skew_ms)))


class Jumps:
    """Finds the records that lie far ahead of most of their neighbours, batch after batch.

    Neighbours are the NEAR records of the partition before it and those behind it. A record is far
    ahead if at least half of either are: few of another clock, ahead or behind, do not decide.
    """

    def __init__(self, max_jump_ms: int) -> None:
        self._most = max_jump_ms
        self._before: dict[str, Array] = {}

    def find(
        self, wall: Array, partition: pa.Array, coming: Mapping[str, Array] | None = None
    ) -> Array:
        """Per record whether it is one; `wall` (ms, NULL without one) in the order of each
        partition. `coming`: by partition the first times of the batch to come. Without a neighbour
        on either side a record is none.
        """
        found = np.zeros(len(wall), bool)
        encoded = partition.dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        for code, name in enumerate(encoded.dictionary.to_pylist()):
            at = np.flatnonzero((codes == code) & (wall != NULL))
            before = self._before.get(name, _NONE)
            times = np.concatenate([before, wall[at], (coming or {}).get(name, _NONE)])
            if len(times) and times.max() - times.min() > self._most:
                far = self._far(times) & self._far(times[::-1])[::-1]
                found[at] = far[len(before) : len(before) + len(at)]
            self._before[name] = np.concatenate([before, wall[at]])[-NEAR:]
        return found

    def _far(self, times: Array) -> Array:
        """Which times lie far ahead of at least half of the NEAR before them."""
        count = np.zeros(len(times), np.int64)
        for near in range(1, min(NEAR, len(times) - 1) + 1):
            count[near:] += times[near:] - times[:-near] > self._most
        there = np.minimum(np.arange(len(times)), NEAR)
        return np.asarray((there > 0) & (2 * count >= there))
