"""Which records move no clock: those dated after the plan of their micro-batch.

A micro-batch has the time at which the engine planned it, the same for every repetition. A record
dated further ahead of it than the machines' clocks may differ waits until its key has come that far,
and moves no clock. No record at all moves the clock of a key that is not its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from state.events import NULL

Array = np.ndarray
PLAN = "plan_ms"
"""Column of a source and, once it is taken off, key of the metadata of a batch: the time (ms since
the epoch) at which the engine planned the micro-batch."""
WAITS = "waits"
"""Key of the metadata of a batch whose records move no clock of a key."""
LATEST_MS = 253_402_300_799_999
"""9999-12-31: later times have no day."""


@dataclass(frozen=True)
class ClockLimits:
    """How far from each other the clocks of a fleet may be (ms)."""

    max_future_ms: int = 3_600_000
    """A record further after the plan than this is refused."""
    clock_skew_ms: int = 10_000
    """A record further after the plan than this moves no clock."""


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
