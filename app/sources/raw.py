"""What every source gives: raw records, the same three columns for a stream and for a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "value binary, source_partition string, source_offset bigint"
"""`value` is the record as it came; the other two are its identity, the same in every reading."""

Batches = Iterator[pa.RecordBatch]
Step = Callable[[Batches], Batches]


@dataclass(frozen=True)
class Raw:
    """The records of a source: what Spark reads and, where Spark cannot, the step after it.

    `unpack` makes records of the rows of `frame`. It runs in the Python worker of whatever takes
    the records, so that no record crosses from Python to the JVM and back on its way.
    """

    frame: DataFrame
    unpack: Step | None = None

    def through(self, function: Step, schema: str) -> DataFrame:
        """Give the records to `function` as Arrow batches of SCHEMA; its rows have `schema`."""
        return self.frame.mapInArrow(_chain(self.unpack, function), schema)

    def records(self) -> DataFrame:
        """The records as a Spark frame of SCHEMA."""
        return self.frame if self.unpack is None else self.frame.mapInArrow(self.unpack, SCHEMA)


def _chain(first: Step | None, second: Step) -> Step:
    if first is None:
        return second
    unpack = first  # bound once: the worker must not see an optional

    def both(batches: Batches) -> Batches:
        return second(unpack(batches))

    return both
