"""The engine of a replay: slice after slice through the cores, in threads of one process.

    files of the next slices are read while shards of this one are judged and rows of those before
    are committed

The cores are compiled and run beside each other. What is in memory are the states, the records of
this slice and of the next, those that are read ahead, the rows of one slice and what each thread
decodes; of a file that spans more slices the rest waits on disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from app.engine.payloads import joined
from app.tables.definitions import TABLES
from app.tables.shape import shaped
from app.tables.state_files import States
from app.whatif.replay.archive_reader import Archive, Blobs, Key, Task
from app.whatif.replay.slices import Array, TimeSlice, edges
from app.whatif.replay.spill import Spill
from state.engine.payloads import PARTS

if TYPE_CHECKING:
    from app.engine.operators import Operator
    from app.tables.data_files import DataFile
    from state.engine.job import Step

Tables = dict[str, pa.Table]
AHEAD = 2
"""Slices between the one that is judged and the last that is read for: a thread that has no shard
left to judge goes on with these reads."""


def due(states: States, blobs: Blobs, stream_ms: int) -> list[Key]:
    """The shards to call: those with records, the most first, and those whose time has come."""
    sizes = {key: sum(part.size for part in parts) for key, parts in blobs.items()}
    timed = [key for key, at in states.wakes.items() if at <= stream_ms and key not in sizes]
    return [*sorted(sizes, key=lambda key: (-sizes[key], key)), *sorted(timed)]


@dataclass
class _Ahead:
    """What is read before it is judged."""

    files: list[DataFile]
    """Those that have not been read, by time."""
    bounds: Array
    waiting: Spill
    first: int
    """The slice that the engine begins with."""
    begin_ms: int
    """Its begin; records before it are not needed."""
    reads: dict[int, list[Future[None]]] = field(default_factory=dict)
    """Those that have begun, by the slice that they are for."""

    def read(self, archive: Archive, task: Task, number: int) -> None:
        """Read what a slice needs; what belongs to later ones waits."""
        found = archive.read(task, self.bounds)
        self.waiting.put({n: blobs for n, blobs in found.items() if n >= self.first}, number)

    def ended(self, number: int) -> Blobs:
        """Wait for the reads for a slice; its blobs."""
        for read in self.reads.pop(number):
            read.result()
        return self.waiting.take(number)


class Engine:
    """Slices of an archive through the cores of some jobs."""

    def __init__(
        self,
        archive: Archive,
        group: Mapping[str, Operator],
        idle_advance_ms: int,
        states: States | None = None,
        threads: int | None = None,
        drained_ms: Callable[[int], int | None] = lambda _: None,
    ) -> None:
        """`states`: where the jobs begin; without them they begin empty. `drained_ms` gets the
        latest time of the stream (ms) and returns where its clock goes at the end, if not where
        the stream's waits for records.
        """
        self._archive, self._group = archive, group
        self._idle_advance_ms = idle_advance_ms
        self.states = states or States()
        self._drained_ms = drained_ms
        self._threads = threads or os.cpu_count() or 1

    def run(
        self, found: Sequence[TimeSlice], spill: Path, first: int = 0
    ) -> Iterator[tuple[TimeSlice, Tables]]:
        """Each slice from the number `first` on with its rows by table; when an answer is asked
        for, `states` are those after the answer before."""
        ahead = _Ahead(
            list(self._archive.files),
            edges(list(found)),
            Spill(spill),
            first,
            found[first].begin_ms,
        )
        pool = ThreadPoolExecutor(self._threads)
        try:
            for one in found[first : first + AHEAD]:
                self._begin_reading(pool, ahead, one)
            steps = self._begin(pool, ahead, found, first)
            for one in found[first:]:
                parts = self._ended(steps)
                self.states.latest_ms = max(self.states.latest_ms, one.latest_ms)
                if one.number + 1 < len(found):
                    steps = self._begin(pool, ahead, found, one.number + 1)
                else:
                    self._end(pool, parts)
                yield one, {name: pa.concat_tables(rows) for name, rows in parts.items()}
        finally:
            pool.shutdown(cancel_futures=True)

    def _begin(
        self, pool: ThreadPoolExecutor, ahead: _Ahead, found: Sequence[TimeSlice], number: int
    ) -> dict[Key, Future[Step]]:
        """Judge a slice as soon as it is read, and read one more behind it."""
        steps = self._begin_steps(pool, ahead.ended(number), self._stream_ms)
        for one in found[number + AHEAD : number + AHEAD + 1]:
            self._begin_reading(pool, ahead, one)
        return steps

    @property
    def _stream_ms(self) -> int:
        """The stream's clock after what has been judged."""
        return max(self.states.latest_ms - self._idle_advance_ms, 0)

    def _begin_reading(self, pool: ThreadPoolExecutor, ahead: _Ahead, one: TimeSlice) -> None:
        """Read the files that a slice needs and that have not been read."""
        found, files = ahead.reads.setdefault(one.number, []), ahead.files
        while files and (files[0].least is None or files[0].least < one.end_ms):
            for task in self._archive.tasks(files.pop(0), ahead.begin_ms):
                found.append(pool.submit(ahead.read, self._archive, task, one.number))

    def _begin_steps(
        self, pool: ThreadPoolExecutor, blobs: Blobs, stream_ms: int
    ) -> dict[Key, Future[Step]]:
        return {
            key: pool.submit(
                self._group[key[0]].job.step,
                self.states.states.get(key),
                blobs.get(key, []),
                stream_ms,
            )
            for key in due(self.states, blobs, stream_ms)
        }

    def _ended(self, steps: Mapping[Key, Future[Step]]) -> dict[str, list[pa.Table]]:
        """The rows of steps by table, whose states are kept."""
        parts: dict[str, list[pa.Table]] = {}
        for key, future in steps.items():
            step = future.result()
            self.states.keep(key, step.state, step.wake_at_ms)
            operator = self._group[key[0]]
            for name, rows in step.tables.items():
                whole = joined(rows) if PARTS[0] in rows.column_names else rows
                constants = operator.constants if name in operator.tables else {}
                parts.setdefault(name, []).append(
                    shaped(
                        operator.stamp.stamped(whole) if constants else whole,
                        TABLES[name],
                        constants,
                    )
                )
        return parts

    def _end(self, pool: ThreadPoolExecutor, parts: dict[str, list[pa.Table]]) -> None:
        """Let the stream's clock reach its end, as it does in a run that waits for records."""
        stream_ms = self._drained_ms(self.states.latest_ms) or self._stream_ms
        for name, rows in self._ended(
            {
                key: pool.submit(self._group[key[0]].job.step, state, [], stream_ms)
                for key, state in self.states.states.items()
            }
        ).items():
            parts.setdefault(name, []).extend(rows)
