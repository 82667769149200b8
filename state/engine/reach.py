"""How far a call moves the clocks of keys that are silent (event contract, section 2).

A silent key runs on at its own distance from the plan of the micro-batches, so no record moves the
clock of a key that is not its own.

Worked example, `idle_advance_ms` 10,000. The key's latest record is of 12:00:00 and came in a batch
planned at 12:05:00: its broker's clock, or its feed, is five minutes behind. The last batch that left
nothing in the source was planned at 12:06:00, one minute later: the key's clock is at 12:00:50.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from state.engine.kernel import NULL, Array

KEPT_MS = 3_600_000
"""Silence (ms between plans) after which a key without content is forgotten, and a document that was
replaced before."""


class Reach(NamedTuple):
    """The times of a call (ms since the epoch; 0: none)."""

    stream_ms: int
    """Wall time to which all keys are moved: in a replay that of its slice, at the end of a drained
    input that end."""
    reached_ms: int | None = None
    """The plan of the last micro-batch before this one that left nothing in the source. None where
    `stream_ms` alone moves keys, new ones included."""

    def moved(self, keys: Any, latest: str, idle_advance_ms: int) -> Array:
        """The wall time to which each key is moved, not above 0 for none. `keys` have `plan_ms`, the
        plan of the batch with their last record, and in the field `latest` their latest time."""
        stream = np.full(np.shape(keys), self.stream_ms)
        if not self.reached_ms:
            return stream
        known = keys["plan_ms"] > 0
        plan = np.where(known, keys["plan_ms"], 0)
        # a key all of whose records are ahead of their plans follows the plan
        last = np.where(keys[latest] == NULL, plan, keys[latest])
        own = last + (self.reached_ms - idle_advance_ms) - plan
        return np.asarray(np.where(known, np.maximum(stream, own), stream))

    def stays(self, keys: Array) -> Array:
        """Which keys are kept without content, for their clocks (bool)."""
        if self.reached_ms is None:
            return np.asarray((keys["has_clock"] != 0) & (keys["clock_ms"] > self.stream_ms))
        return np.asarray(keys["plan_ms"] >= self.reached_ms - KEPT_MS)

    def past(self, clock_ms: Array) -> int:
        """The time (ms) that all keys have behind them, new ones included, by the clocks of those
        that have one."""
        if self.reached_ms is None:
            return self.stream_ms
        return min([self.reached_ms - KEPT_MS, *clock_ms.tolist()])
