"""Catch-up: whether a micro-batch reaches what its source had when it was planned.

While records wait in the source nothing is silent: a key without records may have some there. Once
a batch leaves none, silent keys run on with the plans of the batches (`state.engine.reach`). Both
follow from what Spark has planned, so a repeated batch has the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.engine.ticks import DRAINED, REACHED, TICK
from app.sources.files import planned_files
from app.sources.poll_plan import MORE
from app.tables import checkpoints

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.settings import Settings
    from app.sources.raw import Shares
    from app.tables.checkpoints import Plan

LOOKED_AT = 100
"""Batches whose plans Spark keeps, about."""


class CatchUp:
    """How far the batches of one query have come, on the driver."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        query: str,
        shares: Shares | None,
        bounded: bool,
    ) -> None:
        """`shares` is how this run divides a trigger. An unfinished batch may come from an earlier
        run with another limit. In a run that is `bounded` nothing is silent, unless it only
        polls, and so reads what is there now.
        """
        self._context = spark.sparkContext
        self._settings, self._query, self._shares = settings, query, shares
        self._bounded = bounded and settings.streamed is not None
        warehouse = settings.location
        self._again = checkpoints.planned(warehouse, query)
        self._most = 0
        if shares is not None:
            self._most = shares.most
            if self._again is not None:
                kept = checkpoints.require_identity(warehouse, query)
                self._most = min(shares.most, kept.most_records or 0)
            checkpoints.identify(warehouse, query, most_records=self._most)
        self._last: tuple[int, Plan | None] = -1, None
        self._reached_ms: int | None = None
        """The plan of the last batch before the next one that left nothing; None before a look."""
        self._ticked_ms = 0

    def begin(self, batch: int) -> None:
        """Tell the tasks of a batch how far silent keys are moved."""
        drained_ms = self._drained_ms(batch)
        if self._bounded:
            self._say(0, drained_ms, False)
            return
        before, plan = self._plan(batch - 1), self._plan(batch)
        if self._reached_ms is None:
            self._reached_ms = self._reached_before(batch)
        tick = plan.planned_ms - self._ticked_ms >= self._settings.idle_advance_ms
        if tick:
            self._ticked_ms = plan.planned_ms
        self._say(self._reached_ms, drained_ms, tick)
        self._last = batch, plan
        if self._left_nothing(batch, before, plan):
            self._reached_ms = plan.planned_ms

    def end(self, batch: int) -> None:
        """A batch is written."""
        if batch == self._again:
            self._again = None
            if self._shares is not None:
                self._most = self._shares.most
                checkpoints.identify(self._settings.location, self._query, most_records=self._most)

    def polled(self, newest_ms: int) -> None:
        """A batch has records of polls up to a time (ms) to which the stream's clock does not follow
        them: a drain does, in this run or in a later one.
        """
        warehouse, query = self._settings.location, self._query
        kept_ms = checkpoints.require_identity(warehouse, query).polled_ms
        checkpoints.identify(warehouse, query, polled_ms=max(newest_ms, kept_ms))

    def _say(self, reached_ms: int, drained_ms: int, tick: bool) -> None:
        for name, value in ((REACHED, reached_ms), (DRAINED, drained_ms), (TICK, int(tick))):
            self._context.setLocalProperty(name, str(value))

    def _plan(self, batch: int) -> Plan:
        number, known = self._last
        if number == batch and known is not None:
            return known
        return checkpoints.plan(self._settings.location, self._query, batch)

    def _drained_ms(self, batch: int) -> int:
        """Where clocks stand in a batch that a drained input ends with; 0 in any other."""
        warehouse = self._settings.location
        if batch != self._again or not checkpoints.is_drain(warehouse, self._query, batch):
            return 0
        return checkpoints.watermark_ms(warehouse, self._query, batch)

    def _reached_before(self, batch: int) -> int:
        for one in range(batch - 1, max(batch - 1 - LOOKED_AT, -1), -1):
            plan = self._plan(one)
            if plan.planned_ms and self._left_nothing(one, self._plan(one - 1), plan):
                return plan.planned_ms
        return 0

    def _left_nothing(self, batch: int, before: Plan, plan: Plan) -> bool:
        feed, query = self._settings.streamed, self._query
        if self._settings.polled and plan.polls.get(MORE):
            return False
        if self._shares is not None:
            return not self._shares.lagging(before.streamed, plan.streamed, self._most)
        if feed is None or plan.streamed == before.streamed:
            return True
        if feed.format in planned_files.FORMATS:
            return not planned_files.is_full(feed, self._settings.location, query, batch)
        return int(plan.streamed.get("index", -1)) < 0  # of Delta: not amid a version
