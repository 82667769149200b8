"""The service: one query per group of jobs, side by side, until stopped. One carries the archive, or
it has a query of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from app import sources
from app.archive_names import ARCHIVE
from app.config.described import described
from app.engine import archive_query, assignment, govern
from app.engine.assignment import QueryPlan, jobs_of
from app.engine.gatherers import Gatherers
from app.engine.messages import MessageKind
from app.engine.policy_watch import Origin, PolicyWatch
from app.errors import UserError
from app.run import continuing, integrity
from app.run.clock_watch import ClockWatch
from app.run.executors import come_by_themselves
from app.run.failures import (
    ArchiveBlocked,
    BeginsLater,
    Passing,
    QueryFailed,
    RecordsGone,
    TimeTooLarge,
    failure,
)
from app.run.maintenance import staging
from app.run.preflight import refuse
from app.run.progress import OF_POLLS_S, Progress
from app.run.s3a import requests
from app.run.session import build_session, stop_session
from app.run.shutdown import Stopping, ended, finish, listening, waits
from app.run.side_processes import working_beside
from app.run.source_watch import SourceWatch
from app.show.metrics.health import Health
from app.sources.ports import WrongAnswer
from app.sources.python_source import end_planning
from app.tables import (
    checkpoints,
    formats,
    gathering,
    inventory,
    last_configuration,
    lease,
    manifest,
    succession,
)
from app.tables.archive_files import ArchiveUnwritable, ArchiveWriter
from app.tables.gathering import GatheringWriter
from app.tables.run_lock import only_run
from app.terminal import log
from app.terminal.interrupt import stoppable
from app.terminal.moments import instant_of
from state.engine.refused import FAR_MS
from state.jobs import DECLARED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from app.config.settings import Settings

POLL_S = 0.25
NO_DATA_MS = 500
"""Time after which an ending query reports that no record is left."""
LONGEST_PAUSE_S = 60.0
SWEEP_S = 600.0
AGAIN_S = 60.0
NAMED = 6
"""Most feeds that are named where the run begins."""
ATTEMPTS = 5
"""Consecutive restarts of a query with `--available-now`, or of one whose workers die, and of one
that carries an archive that cannot be written. Any other query restarts without limit.
"""


def run(
    settings: Settings,
    available_now: bool = False,
    jobs: Sequence[str] | None = None,
    log_format: log.Format = "text",
    origin: Origin | None = None,
    drain: bool = False,
    archive: str | None = None,
) -> int:
    """Run archive and govern; with `available_now` until the available data is processed, and with
    `drain` until all of it is decided. A new warehouse begins with the `archive` of another one.

    With `jobs` only these jobs run, and the archive only if it is among them. With `origin`
    policies follow their files. Returns 0 when the run ends by itself or is stopped; a failure is
    an exception.
    """
    work(settings, available_now, jobs, log_format, origin=origin, drain=drain, archive=archive)
    return 0


def work(
    settings: Settings,
    available_now: bool = False,
    jobs: Sequence[str] | None = None,
    log_format: log.Format = "text",
    *,
    interactive: bool = False,
    origin: Origin | None = None,
    drain: bool = False,
    archive: str | None = None,
) -> bool:
    """As `run`; returns whether the run was stopped before its end.

    An `interactive` run ends at Ctrl-C like any other command, without finishing a batch.
    """
    settings = assignment.continued(settings)
    made = refuse(settings, jobs, archive)
    with only_run(settings.location, made.touched):
        if assignment.plan(settings, jobs) != made:
            raise UserError(
                f"warehouse: another run has just begun or ended on {settings.warehouse}\n"
                "start again"
            )
        # Errors before this line go to the caller without a log line; the log begins here.
        pause_s = OF_POLLS_S if settings.streamed is None else None
        progress = Progress(log_format=log_format, pause_s=pause_s)
        stopped = _with_spark(
            settings, made, available_now, progress, interactive, origin, drain, archive
        )
    log.end()
    return stopped


def _with_spark(
    settings: Settings,
    made: QueryPlan,
    available_now: bool,
    progress: Progress,
    interactive: bool,
    origin: Origin | None,
    drain: bool,
    archive: str | None,
) -> bool:
    """Run the queries in a Spark session; returns whether the run was asked to stop."""
    from pyspark import SparkContext

    ours = SparkContext._active_spark_context is None
    progress.say(f"warehouse {settings.warehouse}, source {_formats(settings)}: starting Spark")
    stopping = Stopping()
    with stoppable():
        known = settings.model_copy(update=manifest.numbers(settings.location))
        spark = build_session(known, "weir", warn=progress.warn)
    try:
        with stoppable():
            partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 0)
            inventory.claim(settings.location, partitions, settings.shards)
            for query in made.touched:
                try:
                    gathering.commit_left(
                        settings.location,
                        query,
                        settings.maintenance.history_ms,
                        ArchiveWriter if query == ARCHIVE else GatheringWriter,
                    )
                except ArchiveUnwritable as error:
                    progress.warn(f"archive: its files wait for another commit ({error})")
            assignment.apply(settings.location, made)
            formats.keep(settings.location, made.jobs)
            last_configuration.keep(
                settings.location, described(settings, time.time_ns() // 1_000_000)
            )
            notes = [*made.notes(), *sources.notes(settings)]
            if archive is not None:
                notes += continuing.begin(settings, archive, made.queries)
        with listening(spark, stopping, python=not interactive):
            for note in notes:
                progress.say(note)
            settings = settings.model_copy(update=manifest.numbers(settings.location))
            if come_by_themselves(spark):
                _tell_cores(spark, settings, progress)
            if not _archive_is_read(spark, settings, made, stopping, progress):
                return True
            with stoppable():
                _fit_sources(settings, made.queries)
                sources.claim(settings)
            Service(
                spark, settings, made.queries, available_now, stopping, progress, origin, drain
            ).work()
    finally:
        if ours:
            with stoppable():
                stop_session(spark)
    return stopping.asked


def _archive_is_read(
    spark: SparkSession,
    settings: Settings,
    made: QueryPlan,
    stopping: Stopping,
    progress: Progress,
) -> bool:
    """Whether the queries may go on with the source: they have read the archive that comes before it,
    if there is one, unless the run was asked to stop.
    """
    first, location = continuing.filling(settings), settings.location
    if first is None:
        return True
    left = {q: jobs for q, jobs in made.queries.items() if not succession.is_past(location, q)}
    _fit_sources(first, left)
    Service(spark, first, left, True, stopping, progress).work()
    if not stopping.asked:
        with stoppable():
            succession.finish(location, list(made.queries))
            sources.check_all(settings)  # of the other warehouse more may be known
        progress.say(f"the archive is read; {_feeds(settings)} from where it ends")
    return not stopping.asked


def _fit_sources(settings: Settings, queries: Iterable[str]) -> None:
    """Let the queries go on with the sources of these settings."""
    feed, polled = settings.streamed, bool(settings.polled)
    for query in queries:
        checkpoints.fit_sources(settings.location, query, feed.format if feed else None, polled)


def _tell_cores(spark: SparkSession, settings: Settings, progress: Progress) -> None:
    """Say what a cluster has, and whether the warehouse, which keeps its numbers, fits it."""
    cores, partitions = spark.sparkContext.defaultParallelism, settings.partitions or 0
    progress.say(f"{cores} cores of the cluster, {partitions} partitions, {settings.shards} shards")
    if not cores <= 2 * partitions <= 8 * cores:
        progress.warn(
            f"the state of the warehouse is in {partitions} partitions, each the work of one core of"
            f" {cores}; with partitions: {cores}, begin {manifest.filled_anew(settings.location)}"
        )


class Service:
    """Runs and watches the queries of a run until they end."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        queries: Mapping[str, tuple[str, ...]],
        available_now: bool,
        stopping: Stopping,
        progress: Progress | None = None,
        origin: Origin | None = None,
        drain: bool = False,
    ) -> None:
        """`queries` maps each query to its jobs. With `drain` they decide at their end what waits
        for later records.
        """
        self._spark = spark
        self._settings = settings
        self._endless = not available_now
        self._to_drain, self._drained = drain, False
        # By query, the newest time (ms) of records that earlier runs have left undecided; 0 for none.
        self._waiting_ms = {name: self._waits_until(name) for name in queries if drain}
        self._ended_here = not self._endless and not sources.ends_itself(settings)
        self._stopping = stopping
        self._progress = progress or Progress()
        self._policies = PolicyWatch(settings, self._progress.say, self._progress.warn, origin)
        self._health = Health(settings.location, self._progress.warn, partial(requests, spark))
        self._source = SourceWatch(
            settings, self._progress.say, self._progress.warn, silence=self._endless
        )
        self._times = Times(settings, self._progress)
        self._gatherers = Gatherers(settings, self._endless, self._progress.warn)
        self._groups = dict(queries)
        self._queries: dict[str, StreamingQuery] = {}
        self._again: dict[str, tuple[float, int]] = {}
        self._swept = time.monotonic()
        self._planned = False
        """Whether a query was started, and Spark may have processes for that."""
        self._clock = ClockWatch()
        self._misled: set[str] = set()
        """Queries that wait for a time of the wall clock that was before it was set back."""

    def start(self, name: str) -> None:
        """Start or restart a query; errors are reported without secrets."""
        trigger = None if self._endless else self._ending()
        group = jobs_of(self._groups[name])
        archive = self._gatherers.archive() if ARCHIVE in self._groups[name] else None
        try:
            if not group:
                query = archive_query.start(
                    self._spark, self._settings, trigger, archive, not self._endless
                )
            else:
                query = govern.start(
                    self._spark,
                    self._settings,
                    group,
                    trigger,
                    self._times,
                    govern.Writers(self._gatherers.writer(name), archive),
                    not self._endless,
                    self._policies,
                )
        except PySparkException as error:
            # Its text has the plan, and the plan every option of the source.
            raise failure(name, str(error), self._settings) from None
        self._queries[name] = query
        self._planned = True

    def work(self) -> None:
        """Start every query and watch until all have ended or a stop is requested."""
        try:
            with (
                # First, so that it ends last: the alerts' last round comes after the last poll.
                working_beside(self._settings, self._endless, self._progress.warn),
                sources.keep_polling(
                    self._settings, self._groups, self._endless, self._progress.warn
                ),
                self._metrics(),
            ):
                self._watch()
        finally:
            self._progress.close()

    def _metrics(self) -> AbstractContextManager[None]:
        """Serves the metrics during the run, if they are configured."""
        if self._settings.metrics is None:
            return nullcontext()
        from app.show.metrics.serve import exporting

        return exporting(self._settings, self._progress.say, obstacle=self._obstacle)

    def _busy(self) -> bool:
        """Whether a query is at work on a batch."""
        return any(query.isActive and not waits(query) for query in self._queries.values())

    def _obstacle(self) -> str:
        """Why the run processes no new records; empty if it does."""
        if len(self._queries) < len(self._groups):
            return "the queries are being started"
        waiting = [name for name, (due, _) in self._again.items() if due]
        if waiting:
            return f"{', '.join(waiting)}: starting again"
        if self._stopping.asked:
            return "the run is being stopped"
        return self._source.problem

    def _watch(self) -> None:
        try:
            for name in self._groups:
                self.start(name)
            pause_s = self._settings.pause_ms / 1000 if self._endless else 0
            self._progress.say(
                f"started: {', '.join(map(_shown, self._groups.items()))}"
                f"{f', a batch every {pause_s:g} s' if pause_s else ''}; waiting for the first batch of "
                f"{_feeds(self._settings)}"
            )
            while not self._stopping.wait(POLL_S):
                self._progress.look(list(self._queries.values()))
                self._health.look(self._progress.figures)
                self._source.look(self._progress.figures, self._busy())
                if time.monotonic() - self._swept >= SWEEP_S:
                    self._sweep()
                self._follow_clock()
                self._policies.look()
                lease.look(self._settings.location)
                self._gatherers.commit_due()
                self._rest()
                if not self._tend() and not self._drains():
                    break
            if self._stopping.asked:
                self._progress.say("stopping: the running batches are finished first")
        except KeyboardInterrupt:
            # Spark's log lines about interrupted batches carry no information.
            self._spark.sparkContext.setLogLevel("OFF")
            self._stopping.ask()
            self._stopping.ask()
            raise
        finally:
            queries = list(self._queries.values())
            interrupted = finish(queries, self._stopping)
            self._gatherers.commit_all()
            for name in interrupted:
                self._progress.warn(f"{name}: batch interrupted; the next start repeats it")
            self._progress.look(queries)
            self._health.look(self._progress.figures, last=True)
            if not interrupted and not self._endless and not self._stopping.asked:
                self._say_what_waits()
            if not interrupted:
                self._sweep()

    def _drains(self) -> bool:
        """Once, behind the last record: plan for each query of jobs a batch without records whose
        clock is the end of the window of the stream's last record, and start it. Returns whether
        there is one.
        """
        if not self._to_drain:
            return False
        self._to_drain = False
        self._progress.look(list(self._queries.values()))  # their last batches
        found = {name: self._drained_ms(name) for name in self._groups if name != ARCHIVE}
        ends_ms = {name: ms for name, ms in found.items() if ms is not None}
        for name, end_ms in ends_ms.items():
            now_ms = time.time_ns() // 1_000_000
            checkpoints.plan_without_records(self._settings.location, name, end_ms, now_ms)
            self.start(name)
        if ends_ms:
            self._progress.say(
                f"end of the input: every record is decided, and clocks move to"
                f" {instant_of(max(ends_ms.values()))}; records before it that come later are"
                " TOO_LATE"
            )
        self._drained = True
        return bool(ends_ms)

    def _drained_ms(self, name: str) -> int | None:
        """Where the clocks of a query are to stand behind its last record (ms); None where they
        stand there, or where there is no record.
        """
        location, figures = self._settings.location, self._progress.figures
        latest_s = [f.latest_event_s or 0.0 for f in figures if f.name == name]
        latest_ms = max(
            self._waiting_ms[name],
            round(max(latest_s, default=0.0) * 1000),
            checkpoints.require_identity(location, name).polled_ms,
        )
        last = checkpoints.last_ended(location, name)
        clock_ms = checkpoints.next_watermark_ms(location, name, last)
        end_ms = self._settings.window_end_ms(latest_ms)
        return end_ms if latest_ms and end_ms > clock_ms else None

    def _waits_until(self, name: str) -> int:
        """The newest time (ms) of records that are undecided as far as the query's clock tells: it
        follows the newest record by `idle_advance_ms`, until a drain moves it. 0 for none.
        """
        location = self._settings.location
        last = checkpoints.last_ended(location, name)
        clock_ms = checkpoints.next_watermark_ms(location, name, last)
        is_decided = not clock_ms or checkpoints.is_drain(location, name, last)
        return 0 if is_decided else clock_ms + self._settings.idle_advance_ms

    def _say_what_waits(self) -> None:
        """Say that the newest records are stored and not decided: clocks follow the records."""
        newest = max((f.latest_event_s or 0.0 for f in self._progress.figures), default=0.0)
        if newest > 0 and not self._drained:
            ms = round(newest * 1000)
            self._progress.say(
                f"end of the input at {instant_of(ms)}: the newest records of each key"
                " (allowed_lateness_ms) are stored and not decided yet; its next record decides"
                " them, or --drain where none will come"
            )

    def _rest(self) -> None:
        """Behind the first batches, end what Spark needs to plan sources alone."""
        if self._planned and all(query.lastProgress for query in self._queries.values()):
            self._planned = False
            end_planning(self._spark)

    def _sweep(self) -> None:
        """Remove payload files that no message needs, if every batch has ended: a repeated batch
        may need payloads that its first run released.
        """
        self._swept = time.monotonic()
        queries = self._queries.values()
        settled = not self._again and all(
            q.lastProgress is not None and q.exception() is None for q in queries
        )
        if not settled or not any(
            job.payloads and self._settings.job_params(name)[job.payloads]
            for name, job in DECLARED.items()
        ):
            return
        from deltalake.exceptions import DeltaError

        try:
            staging.sweep(self._settings.location)
        except (DeltaError, OSError) as error:  # the next one tries again
            self._progress.warn(f"chunk_payloads: cannot be cleaned up ({type(error).__name__})")

    def _follow_clock(self) -> None:
        """Restart queries that wait for a time that the wall clock has left by a step back."""
        back_s = self._clock.step_back_s()
        if back_s and self._endless:
            pause_ms = dict.fromkeys(self._groups, self._settings.pause_ms)
            if ARCHIVE in pause_ms:
                pause_ms[ARCHIVE] = self._settings.archive_interval_ms
            self._misled |= {name for name in self._groups if pause_ms[name]}
            self._progress.warn(f"the clock was set back by {back_s:.0f} s")
        for name in sorted(self._misled):
            query = self._queries[name]
            if not query.isActive:
                self._misled.discard(name)
            elif waits(query):
                query.stop()
                self.start(name)
                self._misled.discard(name)

    def _tend(self) -> bool:
        """Restart queries that ended with a passing error; returns whether there is still work."""
        busy = False
        for name, query in list(self._queries.items()):
            error = None if query.isActive else query.exception()
            if self._ended_here and query.isActive and self._is_finished(name, query):
                query.stop()
            busy = busy or query.isActive or error is not None
            if error is not None:
                self._restart_later(name, str(error))
            elif name in self._again and query.lastProgress is not None:
                del self._again[name]  # it has recovered: the next failure is a new one
        return busy

    def _ending(self) -> dict[str, Any]:
        """The trigger of a query that stops at the source's present end, which Spark or
        `_is_finished` detects.
        """
        if not self._ended_here:
            return {"availableNow": True}
        self._spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", NO_DATA_MS)
        return {"processingTime": "0 seconds"}

    def _is_finished(self, name: str, query: StreamingQuery) -> bool:
        """Whether a query has reported that no record is left, and none is."""
        progress = query.lastProgress
        return (
            progress is not None and not ended(progress) and sources.finished(self._settings, name)
        )

    def _restart_later(self, name: str, text: str) -> None:
        """Schedule the restart of a query after its pause; raises an error that is not passing."""
        reason = failure(name, text, self._settings)
        due, attempt = self._again.get(name, (0.0, 0))
        # The cause may be damage, or another topic of the same name: then that is the message.
        if isinstance(reason, (QueryFailed, ArchiveBlocked)):
            integrity.check(self._settings, self._groups)
        if isinstance(reason, RecordsGone):
            sources.check_all(self._settings)
            if checkpoints.plan_anew(self._settings.location, name):
                reason = BeginsLater("the query begins at the new beginning")
        if isinstance(reason, TimeTooLarge):
            place = sources.place_beyond_time(self._settings.feed, self._settings.location, name)
            raise UserError(f"{reason}\nit is {place}") if place else reason
        if not isinstance(reason, Passing):
            raise reason
        if not due:
            if attempt >= ATTEMPTS and isinstance(reason, ArchiveBlocked) and name != ARCHIVE:
                self._part_archive(name, str(reason))
                return
            if attempt >= ATTEMPTS and not (self._endless and reason.endless):
                raise UserError(f"query {name}: {reason.what} ({reason})\n{reason.remedy}")
            pause = min(2.0**attempt, LONGEST_PAUSE_S)
            self._again[name] = (time.monotonic() + pause, attempt + 1)
            self._progress.warn(f"{name}: {reason.what} ({reason}); again in {pause:.0f} s")
        elif time.monotonic() >= due:
            self._again[name] = (0.0, attempt)
            try:
                self.start(name)
            except WrongAnswer as error:
                self._restart_later(name, f"ports.WrongAnswer: {error}")

    def _part_archive(self, name: str, reason: str) -> None:
        """Go on without the archive that a query carries and that cannot be written: it becomes a
        query of its own, which begins with the batch that failed.
        """
        location, jobs = self._settings.location, jobs_of(self._groups[name])
        checkpoints.copy_logs(location, name)
        there = assignment.known(location)
        manifest.record(location, {**there, name: jobs, ARCHIVE: (ARCHIVE,)})
        self._groups |= {name: jobs, ARCHIVE: (ARCHIVE,)}
        self._again[name] = (0.0, 0)
        self._progress.warn(
            f"archive: cannot be written ({reason}); it is a query of its own now, which tries again"
            f" until it can and then catches up, and {name} continues without it\nevery record is"
            " read and parsed twice from now on; a new warehouse reads it once"
        )
        self.start(name)
        self.start(ARCHIVE)


def _formats(settings: Settings) -> str:
    return ", ".join(dict.fromkeys(feed.format for feed in settings.feeds))


def _feeds(settings: Settings) -> str:
    titles = [feed.title for feed in settings.feeds]
    return ", ".join(titles) if len(titles) <= NAMED else f"{len(titles)} feeds"


def _shown(query: tuple[str, tuple[str, ...]]) -> str:
    name, jobs = query
    return f"{name} with the archive" if ARCHIVE in jobs and name != ARCHIVE else name


class Times:
    """Warns of records that come too late or are ahead, with the value that would do.

    Of late ones once per larger value, of those that are late by more than a month once, of those
    ahead once in AGAIN_S.
    """

    def __init__(self, settings: Settings, progress: Progress) -> None:
        self._allowed_ms, self._skew_ms = settings.idle_advance_ms, settings.clock_skew_ms
        self._progress = progress
        self._said_s, self._far_said = -AGAIN_S, False

    def __call__(self, kind: MessageKind, needed_ms: int) -> None:
        """Called by the committer; `needed_ms` would have kept them, or let them move the clocks."""
        if kind is MessageKind.LATE and needed_ms > FAR_MS:
            if not self._far_said:
                self._far_said = True
                self._progress.warn(
                    f"TOO_LATE: records are dated {needed_ms / 86_400_000:,.0f} days before the "
                    "others; they are in quarantine\nset the clock of who wrote them; the "
                    "columns broker and source_partition of quarantine name it"
                )
        elif kind is MessageKind.LATE and needed_ms > self._allowed_ms:
            self._allowed_ms = needed_ms
            self._progress.warn(
                "TOO_LATE: records came for keys that had been silent for longer than idle_advance_ms"
                f" allows; they are in quarantine\nidle_advance_ms: {needed_ms} would have kept them"
            )
        if kind is MessageKind.AHEAD and time.monotonic() - self._said_s >= AGAIN_S:
            self._said_s = time.monotonic()
            self._progress.warn(
                f"records are dated up to {needed_ms / 1000:,.0f} s after this machine's time and "
                "wait until then: one of the two clocks is wrong\nset the clock of this machine, "
                f"or clock_skew_ms: {needed_ms} (now {self._skew_ms}) for a feed that is ahead"
            )
