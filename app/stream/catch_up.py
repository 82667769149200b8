"""Catch-up: the stream's clock waits for the slowest partition while a source lags.

A trigger that cannot take all that waits takes a share of every partition that has records, and
the shares are not equally far in time. Of such a batch each task returns the latest time of its
partition to the driver, and in the next the clock does not pass the least of them. A partition
that is in no share has been read to its end and is not waited for.

The driver passes the bound to the tasks (`app.ingest.bounded`) as a local property of Spark. A
bound may differ when a batch is repeated: Spark keeps the clock of a batch with its offsets, and
what a batch is bound by only decides the clock of later ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from app.ingest.bounded import BOUND, UNKNOWN
from app.warehouse import checkpoints

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.settings import Settings
    from app.ingest.sources.raw import Document, Shares


class CatchUp:
    """The bound of the stream's clock, batch by batch: on the driver, for one query."""

    def __init__(
        self, spark: SparkSession, settings: Settings, query: str, shares: Shares
    ) -> None:
        """`shares` is how this run divides a trigger; a batch that has not ended may be of an
        earlier run, with another limit."""
        self._context = spark.sparkContext
        self._settings, self._query, self._shares = settings, query, shares
        self._again = checkpoints.planned(settings, query)
        self._most = shares.most
        if self._again is not None:
            self._most = min(shares.most, checkpoints.most_records(settings, query) or 0)
        checkpoints.keep_most_records(settings, query, self._most)
        self._ends: tuple[int, Document] | None = None
        self._latest_ms: dict[str, int] = {}

    def begin(self, batch: int) -> None:
        """Pass to the tasks of a batch how far they may move the clock."""
        lagging = self._shares.lagging(*self._ends_around(batch), self._most)
        if len(lagging) < 2:
            self._latest_ms.clear()
            self._context.setLocalProperty(BOUND, None)  # type: ignore[arg-type]
            return
        known = [self._latest_ms.get(partition) for partition in lagging]
        bound = UNKNOWN if None in known else str(min(ms for ms in known if ms is not None))
        self._context.setLocalProperty(BOUND, bound)

    def end(self, batch: int, bodies: Iterable[Any]) -> None:
        """Take in the times that the tasks of a batch have returned."""
        for body in bodies:
            for found, ms in json.loads(body.to_pybytes()).items():
                partition = self._shares.partition(found)
                self._latest_ms[partition] = max(ms, self._latest_ms.get(partition, ms))
        if batch == self._again:
            self._again, self._most = None, self._shares.most
            checkpoints.keep_most_records(self._settings, self._query, self._most)

    def _ends_around(self, batch: int) -> tuple[Document, Document]:
        """Where a batch begins and where it ends."""
        if self._ends is not None and self._ends[0] == batch - 1:
            before = self._ends[1]
        else:
            before = checkpoints.offsets(self._settings, self._query, batch - 1)
        after = checkpoints.offsets(self._settings, self._query, batch)
        self._ends = batch, after
        return before, after
