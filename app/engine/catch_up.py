"""Catch-up: while a source lags, the stream's clock waits for the slowest partition.

A trigger that cannot take all waiting records takes a share of every partition that has some, and
the shares end at different event times. Each task returns the latest time of its partition to the
driver, and in the next batch the clock does not pass the earliest of these times. A partition
without a share has been read to its end and is not waited for.

The driver passes the bound to the tasks (`app.engine.bounded`) as a local property of Spark. A
repeated batch may have another bound: Spark keeps the clock of a batch with its offsets, and the
bound of a batch affects only the clock of later ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from app.engine.bounded import BOUND, UNKNOWN
from app.tables import checkpoints

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.location import Location
    from app.sources.raw import Document, Shares


class CatchUp:
    """The bound of one query's clock, batch by batch, on the driver."""

    def __init__(
        self, spark: SparkSession, warehouse: Location, query: str, shares: Shares
    ) -> None:
        """`shares` is how this run divides a trigger. An unfinished batch may come from an earlier
        run with another limit.
        """
        self._context = spark.sparkContext
        self._warehouse, self._query, self._shares = warehouse, query, shares
        self._again = checkpoints.planned(warehouse, query)
        self._most = shares.most
        if self._again is not None:
            kept = checkpoints.require_identity(warehouse, query)
            self._most = min(shares.most, kept.most_records or 0)
        checkpoints.identify(warehouse, query, most_records=self._most)
        self._ends: tuple[int, Document] | None = None
        self._latest_ms: dict[str, int] = {}

    def begin(self, batch: int) -> None:
        """Pass the bound of the clock to the tasks of a batch."""
        lagging = self._shares.lagging(*self._ends_around(batch), self._most)
        if len(lagging) < 2:
            self._latest_ms.clear()
            self._context.setLocalProperty(BOUND, None)  # type: ignore[arg-type]
            return
        known = [self._latest_ms.get(partition) for partition in lagging]
        bound = UNKNOWN if None in known else str(min(ms for ms in known if ms is not None))
        self._context.setLocalProperty(BOUND, bound)

    def end(self, batch: int, bodies: Iterable[Any]) -> None:
        """Record the times that the tasks of a batch have returned."""
        for body in bodies:
            for found, ms in json.loads(body.to_pybytes()).items():
                partition = self._shares.partition(found)
                self._latest_ms[partition] = max(ms, self._latest_ms.get(partition, ms))
        if batch == self._again:
            self._again, self._most = None, self._shares.most
            checkpoints.identify(self._warehouse, self._query, most_records=self._most)

    def _ends_around(self, batch: int) -> tuple[Document, Document]:
        """Offsets at which a batch begins and ends."""
        if self._ends is not None and self._ends[0] == batch - 1:
            before = self._ends[1]
        else:
            before = checkpoints.offsets(self._warehouse, self._query, batch - 1)
        after = checkpoints.offsets(self._warehouse, self._query, batch)
        self._ends = batch, after
        return before, after
