"""The output of every source: raw records, the same three columns of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from app.sources.clocks import PLAN, stamped
from app.sources.worker import settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "value binary, source_partition string, source_offset bigint"
"""`value` is the record; the other two columns identify it, the same in every reading."""

METRIC = "records"
"""Observed metric of a query over a source, and its column: records read in a batch."""
COUNT_BITS = 40
"""Bits of the number of a task that are its records."""

Batches = Iterator[pa.RecordBatch]
Document = dict[str, Any]
"""An offset of Spark; Kafka's has the next offset by topic and partition."""
Step = Callable[[Batches], Batches]
Counting = Callable[[Batches, Callable[[int], None]], Batches]


@dataclass(frozen=True)
class Shares:
    """How a trigger that cannot take all waiting records is divided: every partition with records
    gets a share, so that all of them advance in every batch.
    """

    most: int
    """Most records of a batch."""
    with_topic: bool
    """Whether a record's identity names the topic of its partition."""

    def name(self, topic: str, partition: str) -> str:
        """Name of the partition in `source_partition`."""
        return f"{topic}-{partition}" if self.with_topic else partition

    def partition(self, source_partition: str) -> str:
        """The partition in the identity of a record."""
        return source_partition

    def lagging(self, before: Document, after: Document, most: int) -> list[str]:
        """The partitions that a batch advances from one offset to another, if it leaves records
        behind; `most` is the limit under which it was planned.
        """
        ends = self.ends(before)
        taken = {name: end - ends.get(name, 0) for name, end in self.ends(after).items()}
        taken = {name: count for name, count in taken.items() if count > 0}
        # Spark rounds each partition's share down, and takes a record at least.
        return list(taken) if sum(taken.values()) > most - len(taken) else []

    def ends(self, document: Document) -> dict[str, int]:
        """The offsets of a document by the name of their partition."""
        return {
            self.name(topic, partition): offset
            for topic, partitions in document.items()
            for partition, offset in partitions.items()
        }


@dataclass(frozen=True)
class Raw:
    """The records of a source: the frame that Spark reads, and a further step in Python if it needs
    one.

    `unpack` turns the rows of `frame` into records. It runs in the Python worker that consumes the
    records, so that no record crosses from Python to the JVM and back.
    """

    frame: DataFrame
    unpack: Step | None = None
    shares: Shares | None = None
    """None for a source that takes whole files, one after the other."""
    polls: Raw | None = None
    """The polls beside a source that is streamed."""

    def through(self, function: Step, schema: str, polls: Step | None = None) -> DataFrame:
        """Pass the records to `function`, those of the polls to `polls` if it is given, as Arrow
        batches of SCHEMA, each stamped with the plan of the micro-batch (`app.sources.clocks`); the
        rows have `schema`.

        A query over the frame counts the records for its progress reports (METRIC): a set of numbers,
        one of each task, so that a task which Spark repeats is counted once.
        """
        from pyspark.sql.functions import col, collect_set

        mapped = self._mapped(function, schema)
        if self.polls is not None:
            mapped = mapped.union(self.polls._mapped(polls or function, schema))
        observed = mapped.observe(METRIC, collect_set(METRIC).alias(METRIC))
        return observed.where(col(METRIC).isNull()).drop(METRIC)

    def _mapped(self, function: Step, schema: str) -> DataFrame:
        """The rows of `function`, and a row of each task with its records in a column METRIC."""
        from pyspark.sql.functions import current_timestamp, unix_millis
        from pyspark.sql.pandas.types import to_arrow_schema
        from pyspark.sql.types import StructType

        counting = f"{schema}, {METRIC} bigint"
        rows = to_arrow_schema(cast(StructType, StructType.fromDDL(counting)))
        # in a stream the time at which the batch was planned, also for a repetition
        planned = self.frame.withColumn(PLAN, unix_millis(current_timestamp()))
        step = _counted(_chain(self.unpack, function), rows)
        # its stub says that Spark gives any iterable
        return planned.mapInArrow(step, counting)  # type: ignore[arg-type]


def joined(parts: Sequence[Raw]) -> Raw:
    """A source with its polls: one of the two, or the streamed source first."""
    first, *polls = parts
    return replace(first, polls=polls[0]) if polls else first


def _chain(first: Step | None, second: Step) -> Counting:
    """`second` after `first`, with the number of records that pass between them."""

    def both(batches: Batches, count: Callable[[int], None]) -> Batches:
        plan: list[int] = []

        def unplanned() -> Batches:
            for batch in batches:
                if batch.num_rows and not plan:
                    plan.append(batch.column(PLAN)[0].as_py())
                yield batch.drop_columns([PLAN])

        def passed() -> Batches:
            for batch in unplanned() if first is None else first(unplanned()):
                count(batch.num_rows)
                yield stamped(batch, plan[0]) if plan else batch

        return second(passed())

    return both


def _counted(step: Counting, rows: pa.Schema) -> Step:
    """The step with one more column, null in its rows, and a last row of nulls in the schema `rows`,
    whose number is the partition of the task, and the records read by it in the lowest bits.
    """

    def counted(batches: Batches) -> Batches:
        from pyspark import TaskContext

        settle()
        read: list[int] = []
        for batch in step(batches, read.append):
            # without what a source says of its columns beside their types, as the last row is
            yield pa.record_batch(
                [*batch.columns, pa.nulls(batch.num_rows, pa.int64())], names=rows.names
            )
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        nulls = [pa.nulls(1, field.type) for field in rows][:-1]
        count = pa.array([task << COUNT_BITS | sum(read)])
        yield pa.record_batch([*nulls, count], names=rows.names)

    return counted
