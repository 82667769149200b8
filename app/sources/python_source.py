"""Sources that plan their own batches, through Spark's Python data source API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLANNING = "pyspark.sql.worker."
"""Begin of the modules that Spark's Python processes for the planning of sources run."""


class Rows(InputPartition):
    """What a task is given: rows that say what it reads."""

    def __init__(self, value: list[tuple[Any, ...]]) -> None:
        super().__init__(value)


class PlanningReader(DataSourceStreamReader):
    """Plans the batches of one query; the tasks that parse the records read them."""

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The rows of a task."""
        return iter(partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is kept of what has ended."""

    def stop(self) -> None:
        """Nothing is open."""


def opened(spark: SparkSession, schema: str, reader: DataSourceStreamReader) -> DataFrame:
    """The rows of a reader as a stream. The reader is registered under a name of
    its own: Spark would store options in its plans as plain text, and warns of a name that is taken.
    """
    name_of_its_own, rows = f"weir_{uuid4().hex}", schema

    class OfReader(DataSource):
        @classmethod
        def name(cls) -> str:
            return name_of_its_own

        def schema(self) -> str:
            return rows

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
            return reader

    spark.dataSource.register(OfReader)
    return spark.readStream.format(name_of_its_own).load()


def end_planning(spark: SparkSession) -> None:
    """End the Python processes in which Spark has planned sources. It keeps them, 40 MB each, and
    starts them again where it plans a source.
    """
    from py4j.protocol import Py4JError

    assert spark._jvm is not None
    with suppress(Py4JError):  # another release may keep them elsewhere
        env = spark._jvm.org.apache.spark.SparkEnv.get()
        kept = env.getClass().getDeclaredField("pythonWorkers")
        kept.setAccessible(True)
        factories = kept.get(env).iterator()
        while factories.hasNext():
            pair = factories.next()
            if pair._1().workerModule().startswith(PLANNING):
                pair._2().stop()
