"""Which records move no clock: what a clock of somebody else's cannot vouch for.

A micro-batch has the time at which the engine planned it, the same for every repetition. A record
dated further ahead of it than the machines' clocks may differ waits until the stream has come that
far, and so does, in a catch-up, one that lies far ahead of others of its partition before it and
behind it. Neither moves the
clock of a key or of the stream, so a wrong clock costs its own records alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

Array = np.ndarray
PLAN = "plan_ms"
"""Column of a source and, once it is taken off, key of the metadata of a batch: the time (ms since
the epoch) at which the engine planned the micro-batch."""
ENDLESS_MS = 2**62
LATEST_MS = 253_402_300_799_999
"""9999-12-31: later times have no day, and do not move the stream's clock."""
NULL = np.int64(-(2**63))


@dataclass(frozen=True)
class Limits:
    """How far from each other the clocks of a fleet may be (ms)."""

    max_future_ms: int = 3_600_000
    """A record further after the plan than this is refused."""
    clock_skew_ms: int = 10_000
    """A record further after the plan than this moves no clock."""
    max_jump_ms: int = 3_600_000
    """A record further after one before and one behind it in its partition than this moves none."""


UNBOUND = Limits(ENDLESS_MS, ENDLESS_MS, ENDLESS_MS)
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


def is_ahead(wall: Array, plan_ms: Array | int, skew_ms: int) -> Array:
    """Which times (ms, NULL without one) lie further after the plan than clocks may differ."""
    return np.asarray((wall != NULL) & (wall > np.asarray(plan_ms) + np.int64(skew_ms)))


class Jumps:
    """Finds the records that lie far ahead of one before them and of one behind them in their
    partition, batch after batch: the partition has come back from them.
    """

    def __init__(self, max_jump_ms: int) -> None:
        self._most = max_jump_ms
        self._last: dict[str, int] = {}

    def find(
        self, wall: Array, partition: pa.Array, coming: Mapping[str, int] | None = None
    ) -> Array:
        """Per record whether it is one; `wall` (ms, NULL without one) in the order of each
        partition. `coming`: by partition a time of the batch to come, if there is one.
        """
        found = np.zeros(len(wall), bool)
        encoded = partition.dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        for code, name in enumerate(encoded.dictionary.to_pylist()):
            at = np.flatnonzero((codes == code) & (wall != NULL))
            if not len(at):
                continue
            times = wall[at]
            behind = np.append(times[1:], (coming or {}).get(name, times[-1]))
            least = np.minimum.accumulate(behind[::-1])[::-1]
            returns = times - least > self._most
            last = self._last.get(name, int(times[0]))
            if returns.any():
                last = self._mark(times, returns, last)
                found[at] = returns
            else:
                last = int(times[-1])
            self._last[name] = last
        return found

    def _mark(self, times: Array, returns: Array, last: int) -> int:
        """Leave in `returns` only records far ahead of the last that is none; that one's time."""
        for i, (ms, far) in enumerate(zip(times.tolist(), returns.tolist(), strict=True)):
            if far and ms - last > self._most:
                continue
            returns[i] = False
            last = ms
        return last
