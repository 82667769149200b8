"""The command `replay`: the jobs over the archive in batch, into a warehouse of its own.

Everything that can be wrong is refused before the first record is read. A replay that was
interrupted judges again only the parts that were not done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from app.config.location import require_reached
from app.engine.operators import Operator, live_logs, live_operators, operators
from app.errors import UserError
from app.read.relations import Warehouse
from app.tables import manifest, run_lock
from app.tables.data_files import DataFile
from app.terminal.counts import counted
from app.terminal.moments import instant_of
from app.terminal.printable import say
from app.whatif.replay import verify
from app.whatif.replay.archive import Archive
from app.whatif.replay.archive_reader import ArchiveReader, Bins
from app.whatif.replay.begin import begin_of
from app.whatif.replay.event_span import FIRST_MS, EventSpan
from app.whatif.replay.in_threads import Threads
from app.whatif.replay.on_spark import OnSpark
from app.whatif.replay.out import ReplayFolder, absolute
from app.whatif.replay.replay_progress import ReplayProgress
from app.whatif.replay.slices import BYTES, TimeSlice, edges, slices
from app.whatif.replay.stages import Stages, Write, clocks_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.settings import Settings
    from app.whatif.replay.replay_request import ReplayRequest

PARTS_PER_CORE = 2
"""Into how many parts the shards of a job are divided, at most, for each core."""


def refuse(settings: Settings, asked: ReplayRequest) -> None:
    """UserError for what is wrong, as far as it shows before records are read."""
    Replay(settings, asked)


def replay(settings: Settings, asked: ReplayRequest, spark: SparkSession | None = None) -> int:
    """Replay, and with `verify` compare; 0, or 1 where live tables differ."""
    begun = Replay(settings, asked, spark)
    begun.plan()
    begun.run()
    return begun.verified() if asked.verify else 0


def _group(settings: Settings, jobs: Sequence[str], asked: ReplayRequest) -> Mapping[str, Operator]:
    """The operators: under the policies of the run each version holds from its time on, as there;
    others hold from the beginning."""
    logs = [log for log in live_logs(settings.location, jobs).values() if log is not None]
    policies = settings.policy_dicts()
    if not asked.throughout and all(log.last == policies for log in logs):
        return live_operators(settings, jobs)
    return operators(settings, jobs)


class Engine(Protocol):
    """What calls the two stages of a replay: threads of this process, or tasks of Spark."""

    cores: int

    def bins(
        self, reader: ArchiveReader, files: Iterable[DataFile], offset_ms: int
    ) -> Iterator[Bins]:
        """The records of files in bins."""
        ...

    def run(
        self,
        stages: Stages,
        files: Sequence[DataFile],
        write: Write,
        progress: ReplayProgress,
    ) -> None:
        """Pack the records of some files, then judge every part; `write` keeps its rows."""
        ...


class Replay:
    """A replay that may begin: what it needs is there and fits."""

    def __init__(
        self, settings: Settings, asked: ReplayRequest, spark: SparkSession | None = None
    ) -> None:
        """In tasks of `spark`, or in threads; UserError for what is wrong."""
        require_reached(asked.out, asked.option)
        Warehouse.of(settings.location).require()
        self._settings = settings.model_copy(update=manifest.numbers(settings.location))
        self._jobs = asked.jobs or settings.jobs
        self._group = _group(self._settings, self._jobs, asked)
        self._asked = asked
        self._begin = begin_of(self._settings, self._jobs, asked)
        self._span = self._begin.span
        self.out = ReplayFolder(self._settings, asked.out, self._identity(), asked.option)
        self._engine: Engine
        if spark is None:
            self._engine = Threads(self.out.exchange)
        else:
            self._engine = OnSpark(spark)

    def plan(self, archive_version: int | None = None) -> None:
        """Open the archive, in its newest version or another one, and cut the span into slices;
        UserError where there is nothing to replay."""
        out = self.out
        self._archive = Archive(
            self._settings,
            {name: o.route for name, o in self._group.items()},
            EventSpan(self._begin.read_ms, self._span.end_ms),
            self._asked.choice,
            out.archive_version if out.begun else archive_version,
        )
        if not out.begun:
            self._slices = self._cut()

    @property
    def archive_version(self) -> int:
        """The version of the archive that is replayed."""
        return self._archive.version

    @property
    def begins(self) -> list[str]:
        """Where it begins, in words: which rows a longer past could change."""
        return self._begin.said(self._settings.blind_after_gap_ms(), self._jobs)

    def run(self, say_begin: bool = True) -> None:
        """Judge all that is left; `say_begin` prints where it begins."""
        with run_lock.only_run(self.out.settings.location, ["replay"]):
            if not self.out.ended:
                self._judge(say_begin)
            else:
                say(f"{self._asked.out}: this replay has ended; nothing is left to do")

    def _identity(self) -> dict[str, Any]:
        """What makes two replays the same."""
        settings, asked = self._settings, self._asked
        return {
            "warehouse": settings.warehouse,
            "jobs": list(self._jobs),
            "params_hash": {job: settings.params_hash(job) for job in self._jobs},
            "versions": {
                job: [list(pair) for pair in self._group[job].stamp.hashes] for job in self._jobs
            },
            "shards": settings.shard_count,
            "from_ms": self._span.begin_ms,
            "to_ms": self._span.end_ms,
            "warm_up_ms": asked.warm_up_ms,
            "filters": asked.choice.filters,
            "replaced": sorted(list(key) for key in asked.choice.replaced),
            "after": None if asked.after is None else absolute(asked.after),
            "drain": asked.drain,
        }

    def _cut(self) -> list[TimeSlice]:
        """The slices of the span."""
        begin_ms = self._span.begin_ms
        bins = self._archive.counted(0 if begin_ms == FIRST_MS else begin_ms, self._engine.bins)
        here = int(bins.records[bins.latest_ms >= begin_ms].sum())
        untimed = any(f.untimed for f in self._archive.files)
        if not here and not (untimed and begin_ms == FIRST_MS):
            there = " to ".join(map(instant_of, self._archive.held_ms or ()))
            raise UserError(
                f"{self._asked.command}: the archive of {self._settings.warehouse} has no records "
                + self._span.described(self._asked.choice.filters)
                + (f"\nit has those from {there}" if there else "")
            )
        return slices(bins, self._archive.span, begin_ms, self._per_slice(), self._before_ms)

    @property
    def _before_ms(self) -> int:
        """The stream's latest time before the span."""
        return FIRST_MS if self._begin.states is None else self._begin.states.latest_ms

    def _per_slice(self) -> int:
        """Records of a slice: as asked, fewer where they are large."""
        rows = sum(file.rows or 0 for file in self._archive.files)
        size = sum(file.bytes for file in self._archive.files)
        return max(min(self._asked.records, BYTES * rows // size if size else BYTES), 1)

    def _judge(self, say_begin: bool) -> None:
        """Judge the parts that are left and commit all."""
        out, begin, settings = self.out, self._begin, self._settings
        if not out.begun:
            divisor = min(settings.shard_count, PARTS_PER_CORE * self._engine.cores)
            out.begin(self._archive.version, self._slices, divisor, begin.states)
            for line in self.begins if say_begin else ():
                say(line)
            left = out.parts
        else:
            left = [part for part in out.parts if out.files.done(part) is None]
            done = len(out.parts) - len(left)
            say(f"{self._asked.out}: goes on behind {done} of {counted(len(out.parts), 'part')}")
        clocks = clocks_of(
            out.slices,
            edges(out.slices),
            settings.idle_advance_ms,
            max(self._before_ms, 0),
            begin.written_ms,
            self._drained_ms,
        )
        records = sum(one.records for one in out.slices)
        progress = ReplayProgress(sum(f.rows or 0 for f in self._archive.files), len(left))
        if left:
            stages = Stages(self._archive.reader, self._group, clocks, left, out.divisor)
            self._engine.run(stages, self._archive.files, out.files.write, progress)
        progress.end(records, out.commit(self._group))

    def _drained_ms(self, latest_ms: int) -> int | None:
        """Where clocks are to stand behind the last record; None where they stop with it."""
        return self._settings.window_end_ms(latest_ms) if self._asked.drain else None

    def verified(self) -> int:
        """Compare with the live tables; 0 where they are the same."""
        settings = self._settings
        begin_ms, end_ms = self._begin.same_ms, self._span.end_ms
        if self._asked.bounded:
            # What later records complete is not written here, and is in the live tables.
            latest = self.out.slices[-1].latest_ms
            open_ms = settings.idle_advance_ms + settings.stats_window_ms
            end_ms = min(end_ms, latest) - open_ms - settings.allowed_lateness_ms
        without_payload = not settings.archive_payload
        counts, found = verify.differences(
            Warehouse.of(settings.location),
            Warehouse.of(self.out.settings.location),
            self._group,
            begin_ms,
            end_ms,
            without_payload,
        )
        where = EventSpan(begin_ms, end_ms).described()
        for name, rows in counts.items():
            if all(one.table != name for one in found):
                say(f"{name}: the same {counted(rows, 'row')}")
        for one in found:
            say(one)
        tables = counted(len(counts), "table")
        say(
            f"{len(found)} of {tables} {'differs' if len(found) == 1 else 'differ'} {where}"
            if found
            else f"all {len(counts)} tables are those of the live run {where}"
        )
        return 1 if found else 0
