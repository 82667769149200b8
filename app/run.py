"""The service: the archive and one query per group of jobs, side by side, until stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app import archive, govern, manifest, sources
from app.errors import UserError
from app.failures import Passing, failure
from app.progress import Progress
from app.run_lock import only_run
from app.session import build_session
from app.shutdown import Stopping, drain, listening

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from app.settings import Settings

POLL_S = 0.25
LONGEST_PAUSE_S = 60.0
ATTEMPTS = 5
"""How often a query with an end is started again in a row; one without an end, for ever."""


@dataclass(frozen=True)
class Part:
    """One query of a run and how it is started."""

    name: str
    start: Callable[[], StreamingQuery]


def run(settings: Settings, available_now: bool = False, jobs: Sequence[str] | None = None) -> int:
    """Run archive and govern; with `available_now` to the end of what is there.

    With `jobs` only these jobs run, without the archive unless it is among them. Answers 0 when
    the run ends by itself or is stopped; a failure is an exception.
    """
    settings, archived = chosen(settings, jobs)
    sources.check(settings)
    kept = manifest.check(settings)
    if kept is not None:
        settings = settings.model_copy(update={"partitions": kept.partitions})
    names = [govern.query_name(group) for group in settings.queries]
    names += [archive.NAME] if archived else []
    with only_run(settings, names):
        return _with_spark(settings, archived, available_now)


def chosen(settings: Settings, jobs: Sequence[str] | None) -> tuple[Settings, bool]:
    """The settings with the groups cut down to `jobs`, and whether the archive runs."""
    if jobs is None:
        return settings, True
    allowed = (*settings.jobs, archive.NAME)
    for job in jobs:
        if job not in allowed:
            raise UserError(
                f"--jobs {job}: is not a job of this configuration\n"
                f"allowed: {', '.join(allowed)}"
            )
    groups = [[job for job in group if job in jobs] for group in settings.queries]
    groups = [group for group in groups if group]
    return settings.model_copy(update={"queries": groups}), archive.NAME in jobs


def _with_spark(settings: Settings, archived: bool, available_now: bool) -> int:
    from pyspark import SparkContext

    ours = SparkContext._active_spark_context is None
    spark = build_session(settings, "weir")
    stopping = Stopping()
    try:
        partitions = int(spark.conf.get("spark.sql.shuffle.partitions"))
        manifest.claim(settings, partitions)
        with listening(spark, stopping):
            Service(spark, settings, archived, available_now, stopping).work()
    finally:
        if ours:
            spark.stop()
    return 0


class Service:
    """The queries of a run, watched until they end."""

    def __init__(
        self, spark: SparkSession, settings: Settings, archived: bool, available_now: bool,
        stopping: Stopping,
    ) -> None:
        self._settings = settings
        self._endless = not available_now
        self._stopping = stopping
        self._progress = Progress()
        self._late = Late(settings, self._progress)
        trigger: dict[str, Any] | None = {"availableNow": True} if available_now else None
        self._parts = [
            Part(
                govern.query_name(group),
                lambda group=group: govern.start(spark, settings, group, trigger, self._late),
            )
            for group in settings.queries
        ]
        if archived:
            start = lambda: archive.start(spark, settings, trigger)  # noqa: E731
            self._parts.append(Part(archive.NAME, start))
        self._queries: dict[str, StreamingQuery] = {}
        self._again: dict[str, tuple[float, int]] = {}

    def work(self) -> None:
        """Start every query and watch until all have ended or a stop is asked for."""
        try:
            for part in self._parts:
                self._queries[part.name] = part.start()
            while not self._stopping.wait(POLL_S):
                self._progress.look(list(self._queries.values()))
                if not self._tend():
                    break
            if self._stopping.asked:
                self._progress.say("stopping: the running batches are finished first")
        finally:
            queries = list(self._queries.values())
            for name in drain(queries, self._stopping):
                self._progress.say(f"{name}: batch interrupted; the next start repeats it")
            self._progress.look(queries)
            self._progress.close()

    def _tend(self) -> bool:
        """Whether there is still work; queries that something passing has ended start again."""
        busy = False
        for part in self._parts:
            query = self._queries[part.name]
            if query.isActive:
                busy = True
                if part.name in self._again and query.lastProgress is not None:
                    del self._again[part.name]  # it works again: the next failure is a new one
                continue
            error = query.exception()
            if error is not None:
                self._restart_later(part, str(error))
                busy = True
        return busy

    def _restart_later(self, part: Part, text: str) -> None:
        """Start the query again when its pause is over; raise what no pause can mend."""
        reason = failure(part.name, text, self._settings)
        due, attempt = self._again.get(part.name, (0.0, 0))
        if not isinstance(reason, Passing):
            raise reason
        if not due:
            if attempt >= ATTEMPTS and not self._endless:
                raise UserError(
                    f"query {part.name}: the source does not answer ({reason})\n"
                    "start again when it does: the run goes on where it was"
                )
            pause = min(2.0**attempt, LONGEST_PAUSE_S)
            self._again[part.name] = (time.monotonic() + pause, attempt + 1)
            self._progress.say(
                f"{part.name}: the source does not answer ({reason}); again in {pause:.0f} s"
            )
        elif time.monotonic() >= due:
            self._again[part.name] = (0.0, attempt)
            self._queries[part.name] = part.start()


class Late:
    """Says, once per larger value, that partitions are further apart than the settings allow."""

    def __init__(self, settings: Settings, progress: Progress) -> None:
        self._allowed_ms = settings.idle_advance_ms
        self._progress = progress

    def __call__(self, needed_ms: int) -> None:
        """Told by the committer: records came too late, `needed_ms` would have kept them."""
        if needed_ms <= self._allowed_ms:
            return
        self._allowed_ms = needed_ms
        self._progress.say(
            f"TOO_LATE: parts of the stream are further apart than idle_advance_ms allows; "
            f"the records are in quarantine\nidle_advance_ms: {needed_ms} would have judged them"
        )
