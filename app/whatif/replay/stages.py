"""The two stages of a replay, which threads of one process or tasks of Spark call.

    row group ─► pack: chosen, validated, routed ─► exchange by part and shard, in order of slices
              ─► judge: one pass per shard through the slices ─► rows, states

A part has some shards of one job. It is judged at once and its rows are in files of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.engine.payloads import joined
from app.tables.definitions import TABLES
from app.tables.shape import shaped
from app.tables.state_files import States
from app.whatif.replay.archive_reader import ArchiveReader, PackedBlob, RowGroup
from app.whatif.replay.event_span import FIRST_MS
from state.engine.payloads import PARTS
from state.engine.reach import Reach

if TYPE_CHECKING:
    from app.engine.operators import Operator
    from app.whatif.replay.slices import TimeSlice
    from state.engine.job import Step

Array = np.ndarray
Rows = Iterator[tuple[str, pa.Table]]
"""Rows of tables by name."""


class ReplayPart(NamedTuple):
    """Some shards of a job: those whose number leaves this remainder."""

    job: str
    remainder: int


class Placed(NamedTuple):
    """A packed blob in the order in which a part is judged."""

    shard: int
    slice: int
    blob: Any


Write = Callable[["Stages", ReplayPart, Iterable[Placed]], int]
"""Judges a part and keeps its rows; the number of rows."""


@dataclass(frozen=True)
class SliceClocks:
    """The slices of a replay, as one shard goes through them."""

    edges_ms: Array
    """Where slices begin, and the end of the last (ms since the epoch)."""
    stream_ms: Array
    """The stream's clock before each slice, and after the last."""
    latest_ms: int
    """Latest wall time at the end."""
    first_written: int
    """The first slice whose rows are written: those before it are a warm-up."""
    from_ms: int = FIRST_MS
    """Event time of the first rows that are written."""


def clocks_of(
    slices: Sequence[TimeSlice],
    edges_ms: Array,
    idle_advance_ms: int,
    before_ms: int = 0,
    from_ms: int = FIRST_MS,
    drained_ms: Callable[[int], int | None] = lambda _: None,
) -> SliceClocks:
    """The clocks of a stream whose latest time before the slices is `before_ms`. `drained_ms` gets
    the latest time at the end (ms) and returns where the clock goes then, if not where the stream's
    waits for records.
    """
    latest = np.maximum(np.array([before_ms, *(one.latest_ms for one in slices)]), before_ms)
    stream = np.maximum(latest - idle_advance_ms, 0)
    stream[-1] = drained_ms(int(latest[-1])) or stream[-1]
    warm_up = sum(one.warm_up for one in slices)
    return SliceClocks(edges_ms, stream, int(latest[-1]), warm_up, from_ms)


@dataclass(frozen=True)
class Stages:
    """What both stages need."""

    reader: ArchiveReader
    group: Mapping[str, Operator]
    clocks: SliceClocks
    parts: Sequence[ReplayPart]
    """Those that are to be judged."""
    divisor: int
    """Into how many parts the shards of a job are divided."""

    def part_of(self, job: str, shard: int) -> ReplayPart:
        """The part of a shard."""
        return ReplayPart(job, shard % self.divisor)

    def pack(self, group: RowGroup) -> Iterator[PackedBlob]:
        """The records of a row group for the parts that are to be judged."""
        wanted = frozenset(self.parts)
        for packed in self.reader.read(group, self.clocks.edges_ms):
            if self.part_of(packed.job, packed.shard) in wanted:
                yield packed

    def judge(self, part: ReplayPart, states: States, records: Iterable[Placed]) -> Rows:
        """The rows of a part. `states` has those at the begin of its shards, and in the end those
        at their end; `records` are in order of shards and slices.
        """
        silent = {shard for _, shard in states.states}
        for shard, mine in groupby(records, itemgetter(0)):
            silent.discard(shard)
            yield from _ShardPass(self, part.job, shard, states).judged(mine)
        for shard in sorted(silent):
            yield from _ShardPass(self, part.job, shard, states).judged(())
        states.latest_ms = self.clocks.latest_ms


class _ShardPass:
    """One pass of a shard through the slices."""

    def __init__(self, stages: Stages, job: str, shard: int, states: States) -> None:
        self._clocks, self._operator = stages.clocks, stages.group[job]
        self._key, self._states = (job, shard), states
        self._next = 0
        """The first slice that it has not passed."""

    def judged(self, records: Iterable[Placed]) -> Rows:
        """Its rows."""
        last = len(self._clocks.stream_ms) - 1
        for number, mine in groupby(records, itemgetter(1)):
            yield from self._woken(number)
            yield from self._step([one.blob for one in mine], number)
        yield from self._woken(last)
        yield from self._step([], last)

    def _woken(self, until: int) -> Rows:
        """The rows of slices without records, before one, in which the shard's time comes."""
        stream_ms = self._clocks.stream_ms
        while True:
            wake_ms = self._states.wakes.get(self._key)
            if wake_ms is None:
                return
            number = max(int(np.searchsorted(stream_ms, wake_ms)), self._next)
            if number >= until:
                return
            yield from self._step([], number)

    def _step(self, blobs: list[Any], number: int) -> Rows:
        step = self._operator.job.step(
            self._states.states.get(self._key), blobs, Reach(int(self._clocks.stream_ms[number]))
        )
        self._states.keep(self._key, step.state, step.wake_at_ms)
        # what the end decides belongs to the last slice
        if min(number, len(self._clocks.stream_ms) - 2) >= self._clocks.first_written:
            yield from self._written(step)
        self._next = number + 1

    def _written(self, step: Step) -> Rows:
        operator = self._operator
        for name, rows in step.tables.items():
            whole = joined(rows) if PARTS[0] in rows.column_names else rows
            constants = operator.constants if name in operator.tables else {}
            stamped = operator.stamp.stamped(whole) if constants else whole
            found = _from(shaped(stamped, TABLES[name], constants), self._clocks.from_ms)
            if found.num_rows:
                yield name, found


def _from(rows: pa.Table, from_ms: int) -> pa.Table:
    if from_ms == FIRST_MS:
        return rows
    wall = rows.column("ts_wall_ms")
    return rows.filter(pc.or_kleene(pc.is_null(wall), pc.greater_equal(wall, from_ms)))
