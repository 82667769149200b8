"""The packer during a catch-up: bounds how far the rows of a batch move the stream's clock.

Runs in a Python worker. The driver passes the bound (`app.engine.catch_up`) as a local property of
Spark; without it the packer's rows are unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from app.engine.messages import MessageKind, control_row

if TYPE_CHECKING:
    from app.sources.raw import Batches, Step

BOUND = "weir.clock.bound"
"""Local property of a batch that leaves records in the source: a wall time (ms), or UNKNOWN."""
UNKNOWN = ""
"""The batch has a partition that was not read before: the clock does not move."""


def bounded(pack: Step) -> Step:
    """The packer, with the clock of its rows bounded if the driver has set a bound for the batch.

    A task reads one partition and adds a row with the latest time in it.
    """

    def packed(batches: Batches) -> Batches:
        from pyspark import TaskContext

        context = TaskContext.get()
        bound = None if context is None else context.getLocalProperty(BOUND)
        if bound is None:
            yield from pack(batches)
        else:
            yield from _bounded(pack, batches, None if bound == UNKNOWN else int(bound))

    return packed


def unclocked(pack: Step) -> Step:
    """The packer of polls beside a source that is streamed: their rows do not move the stream's
    clock, since the source may be behind them, in a catch-up or as files that come when they are
    full. A key that polls alone follow has its clock from them.
    """

    def packed(batches: Batches) -> Batches:
        for rows in pack(batches):
            place = rows.schema.get_field_index("ts")
            yield rows.set_column(
                place, rows.schema.field(place), _moments(None, None, rows.num_rows)
            )

    return packed


def _bounded(pack: Step, batches: Batches, bound_ms: int | None) -> Batches:
    partitions: set[str] = set()
    latest_ms: int | None = None
    for rows in pack(_noting(batches, partitions.add)):
        found = pc.max(rows.column("ts")).cast(pa.int64()).as_py()
        if found is not None:
            latest_ms = max(found // 1000, found // 1000 if latest_ms is None else latest_ms)
        place = rows.schema.get_field_index("ts")
        yield rows.set_column(
            place, rows.schema.field(place), _moments(latest_ms, bound_ms, rows.num_rows)
        )
    if latest_ms is not None:
        body = json.dumps(dict.fromkeys(sorted(partitions), latest_ms)).encode()
        yield control_row(MessageKind.CLOCK, body, _moments(latest_ms, bound_ms, 1))


def _noting(batches: Batches, note: Callable[[str], None]) -> Batches:
    for batch in batches:
        if batch.num_rows:
            note(batch.column("source_partition")[0].as_py())
        yield batch


def _moments(latest_ms: int | None, bound_ms: int | None, count: int) -> pa.Array:
    """The time of each row; null does not move the clock."""
    moment = None if latest_ms is None or bound_ms is None else min(latest_ms, bound_ms) * 1000
    return pa.array([moment] * count, pa.timestamp("us", tz="UTC"))
