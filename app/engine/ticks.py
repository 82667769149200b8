"""What a micro-batch tells its tasks of silent keys, as local properties of Spark.

The driver sets them (`app.engine.catch_up`): how far plans have come, where clocks stand at the end
of a drained input, and now and then a tick, with which every shard is called though nothing came
for it. Without properties, as outside of a query of jobs, no silent key moves.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from app.engine.messages import PACKED_SCHEMA, TS, MessageKind

if TYPE_CHECKING:
    from app.sources.raw import Batches

REACHED, DRAINED, TICK = "weir.reached", "weir.drained", "weir.tick"
"""Local properties of a batch: the plan (ms) of the last batch before it that left nothing in the
source; the wall time (ms) at which all clocks stand; whether all shards are called."""


def number(name: str) -> int:
    """One of these properties, in a task; 0 without it."""
    task = _task()
    return int((task and task.getLocalProperty(name)) or 0)


def _task() -> Any:
    """The task of this process; None where Spark is not loaded, as when cores are compiled."""
    loaded = sys.modules.get("pyspark.taskcontext")
    return loaded and loaded.TaskContext.get()


def ticks(jobs: Sequence[str], shards: int, labels: Mapping[str, Sequence[int]] | None) -> Batches:
    """A row of PACKED without records for each shard of some jobs, in one task of a batch with a
    tick. `labels` of the shards of each job stand for their numbers."""
    task = _task()
    if task is None or task.partitionId() or not number(TICK):
        return
    rows = [
        (job, label) for job in jobs for label in (range(shards) if labels is None else labels[job])
    ]
    yield pa.record_batch(
        [
            pa.array([job for job, _ in rows], pa.string()),
            pa.array([label for _, label in rows], pa.int32()),
            pa.array([MessageKind.CLOCK] * len(rows), pa.int8()),
            pa.nulls(len(rows), TS),
            pa.array([b""] * len(rows), pa.binary()),
        ],
        schema=PACKED_SCHEMA,
    )
