"""The service: one query per group of jobs, side by side, until stopped. One carries the archive, or
it has a query of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from app import sources
from app.archive_names import ARCHIVE
from app.config.described import described
from app.engine import assignment
from app.engine.assignment import QueryPlan
from app.engine.policy_watch import Origin, PolicyWatch
from app.errors import UserError
from app.run import continuing
from app.run.clock_watch import Misled
from app.run.draining import Drain, say_what_waits
from app.run.executors import come_by_themselves
from app.run.maintenance import staging
from app.run.preflight import refuse
from app.run.progress import OF_POLLS_S, Progress
from app.run.queries import Queries
from app.run.restarts import Restarts
from app.run.s3a import requests
from app.run.session import build_session, stop_session
from app.run.shutdown import Stopping, finish, listening
from app.run.side_processes import working_beside
from app.run.source_watch import SourceWatch
from app.run.watches import Rounds, Watch
from app.show.metrics.health import Health
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
from state.jobs import DECLARED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.settings import Settings

POLL_S = 0.25
SWEEP_S = 600.0
NAMED = 6
"""Most feeds that are named where the run begins."""


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
        self._spark, self._settings, self._stopping = spark, settings, stopping
        self.progress = progress or Progress()
        say, warn = self.progress.say, self.progress.warn
        policies = PolicyWatch(settings, say, warn, origin)
        self.queries = Queries(spark, settings, queries, not available_now, self.progress, policies)
        self._source = SourceWatch(settings, say, warn, silence=not available_now)
        self._restarts = Restarts(settings, self.queries, self.progress)
        self._drain = Drain(settings, self.queries, self.progress) if drain else None
        self._health = Health(settings.location, warn, partial(requests, spark))
        self._rounds = Rounds(
            # The figures first: the next two tell them.
            Watch(lambda: self.progress.look(self.queries.every)),
            Watch(lambda: self._health.look(self.progress.figures)),
            Watch(lambda: self._source.look(self.progress.figures, self.queries.is_busy)),
            Watch(self._sweep, SWEEP_S),
            Watch(Misled(settings, self.queries, warn).look),
            Watch(policies.look),
            # Rows are committed by a run that has its lease.
            Watch(lambda: lease.look(settings.location)),
            Watch(self.queries.gatherers.commit_due),
            Watch(self.queries.end_planning),
        )

    def work(self) -> None:
        """Start every query and watch until all have ended or a stop is requested."""
        endless, warn = self.queries.endless, self.progress.warn
        try:
            with (
                # First, so that it ends last: the alerts' last round comes after the last poll.
                working_beside(self._settings, endless, warn),
                sources.keep_polling(self._settings, self.queries.groups, endless, warn),
                self._metrics(),
            ):
                self._watch()
        finally:
            self.progress.close()

    def _metrics(self) -> AbstractContextManager[None]:
        """Serves the metrics during the run, if they are configured."""
        if self._settings.metrics is None:
            return nullcontext()
        from app.show.metrics.serve import exporting

        return exporting(self._settings, self.progress.say, obstacle=self._obstacle)

    def _obstacle(self) -> str:
        """Why the run processes no new records; empty if it does."""
        if len(self.queries.started) < len(self.queries.groups):
            return "the queries are being started"
        if waiting := self._restarts.waiting:
            return f"{', '.join(waiting)}: starting again"
        if self._stopping.asked:
            return "the run is being stopped"
        return self._source.problem

    def _watch(self) -> None:
        try:
            for name in self.queries.groups:
                self.queries.start(name)
            self._say_started()
            while not self._stopping.wait(POLL_S):
                self._rounds.look()
                if not self._restarts.look() and not (self._drain and self._drain.begins()):
                    break
            if self._stopping.asked:
                self.progress.say("stopping: the running batches are finished first")
        except KeyboardInterrupt:
            # Spark's log lines about interrupted batches carry no information.
            self._spark.sparkContext.setLogLevel("OFF")
            self._stopping.ask()
            self._stopping.ask()
            raise
        finally:
            self._end()

    def _say_started(self) -> None:
        pause_s = self._settings.pause_ms / 1000 if self.queries.endless else 0
        self.progress.say(
            f"started: {', '.join(map(_shown, self.queries.groups.items()))}"
            f"{f', a batch every {pause_s:g} s' if pause_s else ''}; waiting for the first batch of "
            f"{_feeds(self._settings)}"
        )

    def _end(self) -> None:
        """Let the running batches end, and commit what they have gathered."""
        queries = self.queries.every
        interrupted = finish(queries, self._stopping)
        self.queries.gatherers.commit_all()
        for name in interrupted:
            self.progress.warn(f"{name}: batch interrupted; the next start repeats it")
        self.progress.look(queries)
        self._health.look(self.progress.figures, last=True)
        if interrupted:
            return
        if not (self.queries.endless or self._stopping.asked or self._drain):
            say_what_waits(self.progress)
        self._sweep()

    def _sweep(self) -> None:
        """Remove payload files that no message needs, if every batch has ended: a repeated batch
        may need payloads that its first run released.
        """
        settled = self._restarts.is_settled and all(
            q.lastProgress is not None and q.exception() is None for q in self.queries.every
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
            self.progress.warn(f"chunk_payloads: cannot be cleaned up ({type(error).__name__})")


def _formats(settings: Settings) -> str:
    return ", ".join(dict.fromkeys(feed.format for feed in settings.feeds))


def _feeds(settings: Settings) -> str:
    titles = [feed.title for feed in settings.feeds]
    return ", ".join(titles) if len(titles) <= NAMED else f"{len(titles)} feeds"


def _shown(query: tuple[str, tuple[str, ...]]) -> str:
    name, jobs = query
    return f"{name} with the archive" if ARCHIVE in jobs and name != ARCHIVE else name
