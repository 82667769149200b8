"""The command `replay`: the jobs over the archive in batch, into a warehouse of its own.

Everything that can be wrong is refused before the first record is read. A replay that was
interrupted goes on where its states were kept last.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from app.engine.operators import Operator, live_logs, live_operators, operators
from app.errors import UserError
from app.read.relations import Warehouse
from app.tables import manifest, run_lock
from app.tables.reach import require_delta_rs
from app.terminal.counts import counted
from app.terminal.moments import instant_of
from app.terminal.printable import say
from app.whatif.replay import verify
from app.whatif.replay.archive_reader import FIRST_MS, Archive, EventSpan
from app.whatif.replay.begin import begin_of
from app.whatif.replay.out import ReplayFolder
from app.whatif.replay.slice_engine import Engine
from app.whatif.replay.slices import TimeSlice, slices
from udfs.allocator import keep_freed_memory

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.whatif.replay.replay_request import ReplayRequest

SAY_EVERY_S = 5.0
SWITCH_S = 0.0005
"""How long a thread waits for another that holds the interpreter: a tenth of the default, since
what Python does between two compiled steps is short."""


def replay(settings: Settings, asked: ReplayRequest) -> int:
    """Replay, and with `verify` compare; 0, or 1 where live tables differ."""
    require_delta_rs(settings.warehouse)
    Warehouse.of(settings.location).require()
    begun = Replay(settings, asked)
    begun.run()
    return begun.verified() if asked.verify else 0


def _group(settings: Settings, jobs: Sequence[str], asked: ReplayRequest) -> Mapping[str, Operator]:
    """The operators: under the policies of the run each version holds from its time on, as there;
    others hold from the beginning."""
    logs = [log for log in live_logs(settings.location, jobs).values() if log is not None]
    policies = settings.policy_dicts()
    if not asked.throughout and all(log.last == policies for log in logs):
        return live_operators(settings, jobs)
    if asked.saved and any(log.versions for log in logs):
        instead = "" if asked.throughout else ", or take the policies that it judges by now"
        raise UserError(
            f"{asked.command}: the policies of the run have changed while it ran, and its saved "
            f"states follow them\nleave out --saved{instead}"
        )
    return operators(settings, jobs)


class Replay:
    """A replay that may begin: what it needs is there and fits."""

    def __init__(
        self, settings: Settings, asked: ReplayRequest, archive_version: int | None = None
    ) -> None:
        """Of the newest version of the archive, or another one; UserError for what is wrong."""
        self._settings = settings.model_copy(update=manifest.numbers(settings.location))
        self._jobs = asked.jobs or settings.jobs
        self._group = _group(self._settings, self._jobs, asked)
        self._asked = asked
        self._begin = begin_of(self._settings, self._jobs, asked)
        self._span = self._begin.span
        self.out = ReplayFolder(self._settings, asked.out, self._identity(), asked.option)
        self._archive = Archive(
            self._settings,
            {name: o.route for name, o in self._group.items()},
            EventSpan(self._begin.read_ms, self._span.end_ms),
            asked.choice,
            self.out.archive_version if self.out.begun else archive_version,
            self.out.applied if self.out.begun else self._begin.applied,
        )
        if not self.out.begun:
            self._plan()

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
                self.go_on(say_begin)
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
            "after": None if asked.after is None else str(asked.after.absolute()),
            "saved": asked.saved,
            "drain": asked.drain,
        }

    def _plan(self) -> None:
        """Cut the span into slices; UserError where there is nothing to replay."""
        begin_ms = self._span.begin_ms
        bins = self._archive.counted(0 if begin_ms == FIRST_MS else begin_ms)
        here = int(bins.records[bins.latest_ms >= begin_ms].sum())
        untimed = any(f.untimed for f in self._archive.files)
        if not here and not (untimed and begin_ms == FIRST_MS):
            raise UserError(
                f"{self._asked.command}: the archive of {self._settings.warehouse} has no records "
                + self._span.described(self._asked.choice.filters)
            )
        self._planned = slices(
            bins,
            self._archive.span,
            begin_ms,
            self._per_slice(),
            FIRST_MS if self._begin.states is None else self._begin.states.latest_ms,
        )

    def _per_slice(self) -> int:
        """Records of a slice: as asked, fewer where they are large."""
        from app.whatif.replay.slices import BYTES

        rows = sum(file.rows or 0 for file in self._archive.files)
        size = sum(file.bytes for file in self._archive.files)
        return max(min(self._asked.records, BYTES * rows // size if size else BYTES), 1)

    def go_on(self, say_begin: bool) -> None:
        """Judge what is left slice by slice and commit it."""
        out = self.out
        if out.begun:
            say(f"{self._asked.out}: goes on behind slice {out.done} of {len(out.slices)}")
        else:
            begin = self._begin
            out.begin(self._archive.version, self._planned, begin.states, begin.applied)
            for line in self.begins if say_begin else ():
                say(line)
        keep_freed_memory()
        sys.setswitchinterval(SWITCH_S)
        shutil.rmtree(out.spill, ignore_errors=True)
        out.prepare(self._group)
        engine = Engine(
            self._archive,
            self._group,
            self._settings.idle_advance_ms,
            out.states(),
            drained_ms=self._drained_ms,
        )
        progress = _Progress(out.slices, out.done)
        from_ms = self._begin.written_ms
        for one, tables in engine.run(out.slices, out.spill, out.done):
            progress.take(one, out.take(one, tables, engine.states, from_ms))
        shutil.rmtree(out.spill, ignore_errors=True)
        progress.end()

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


class _Progress:
    """A line every few seconds: how far, how fast, how long still."""

    def __init__(self, found: list[TimeSlice], done: int) -> None:
        self._count, self._total = len(found), sum(one.records for one in found)
        self._before = self._records = sum(one.records for one in found[:done])
        self._rows = 0
        self._began = self._said = time.monotonic()

    def take(self, one: TimeSlice, rows: int) -> None:
        """One more slice is judged."""
        self._records += one.records
        self._rows += rows
        now = time.monotonic()
        if now - self._said < SAY_EVERY_S or one.number + 1 == self._count:
            return
        self._said = now
        rate = (self._records - self._before) / (now - self._began)
        left_s = (self._total - self._records) / rate if rate else 0
        say(
            f"slice {one.number + 1} of {self._count}: {self._records:,} of {self._total:,} "
            f"records, {rate:,.0f} a second, to {instant_of(one.latest_ms)}; "
            f"{left_s:,.0f} s left",
            flush=True,
        )

    def end(self) -> None:
        """All is committed."""
        took = time.monotonic() - self._began
        records = self._records - self._before
        say(
            f"{counted(records, 'record')} in {took:,.1f} s "
            f"({records / max(took, 0.001):,.0f} a second), "
            f"{counted(self._rows, 'row')} written",
            flush=True,
        )
