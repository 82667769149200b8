"""The queries of a run: how each starts, and which are at work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from app import sources
from app.archive_names import ARCHIVE
from app.engine import archive_query, govern
from app.engine.assignment import jobs_of
from app.engine.gatherers import Gatherers
from app.run.failures import failure
from app.run.late_records import Times
from app.run.shutdown import ended, waits
from app.sources.python_source import end_planning

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from app.config.settings import Settings
    from app.engine.policy_watch import PolicyWatch
    from app.run.progress import Progress

NO_DATA_MS = 500
"""Time after which an ending query reports that no record is left."""


class Queries:
    """The queries of a run, by name."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        groups: Mapping[str, tuple[str, ...]],
        endless: bool,
        progress: Progress,
        policies: PolicyWatch,
    ) -> None:
        """`groups` has the jobs of each query; an `endless` run ends when it is asked to."""
        self._spark, self._settings, self.endless = spark, settings, endless
        self.groups = dict(groups)
        self.started: dict[str, StreamingQuery] = {}
        self.gatherers = Gatherers(settings, endless, progress.warn)
        self._policies = policies
        self._times = Times(settings, progress)
        self._ended_here = not endless and not sources.ends_itself(settings)
        self._planned = False
        """Whether a query was started, and Spark may have processes for that."""

    def start(self, name: str) -> None:
        """Start or restart a query; errors are reported without secrets."""
        trigger = None if self.endless else self._ending()
        group = jobs_of(self.groups[name])
        archive = self.gatherers.archive() if ARCHIVE in self.groups[name] else None
        try:
            if not group:
                query = archive_query.start(
                    self._spark, self._settings, trigger, archive, not self.endless
                )
            else:
                query = govern.start(
                    self._spark,
                    self._settings,
                    group,
                    trigger,
                    self._times,
                    govern.Writers(self.gatherers.writer(name), archive),
                    not self.endless,
                    self._policies,
                )
        except PySparkException as error:
            # Its text has the plan, and the plan every option of the source.
            raise failure(name, str(error), self._settings) from None
        self.started[name] = query
        self._planned = True

    @property
    def every(self) -> list[StreamingQuery]:
        """Those that have started."""
        return list(self.started.values())

    @property
    def is_busy(self) -> bool:
        """Whether one is at work on a batch."""
        return any(query.isActive and not waits(query) for query in self.every)

    def end_planning(self) -> None:
        """Behind the first batches, end what Spark needs to plan sources alone."""
        if self._planned and all(query.lastProgress for query in self.every):
            self._planned = False
            end_planning(self._spark)

    def end_finished(self, name: str) -> None:
        """Stop a query that has reported that no record is left, where none is and Spark does not."""
        query = self.started[name]
        if not self._ended_here or not query.isActive:
            return
        progress = query.lastProgress
        if progress and not ended(progress) and sources.finished(self._settings, name):
            query.stop()

    def _ending(self) -> dict[str, Any]:
        """The trigger of a query that stops at the source's present end, which Spark or
        `end_finished` detects.
        """
        if not self._ended_here:
            return {"availableNow": True}
        self._spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", NO_DATA_MS)
        return {"processingTime": "0 seconds"}
