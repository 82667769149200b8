"""The sources: where raw records come from.

A source is a module with two functions. `check(settings)` refuses what cannot be read before
Spark starts, as a UserError; `read(reader, settings)` gives the records of a stream or a batch
reader, which Spark configures alike.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from app.sources import delta, demo, files, kafka, kafka_logs, kafka_messages
from app.sources.raw import SCHEMA, Raw

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from app.settings import Settings

__all__ = ["SCHEMA", "Raw", "check", "open_batch", "open_stream", "read_batch", "read_stream"]

SOURCES: dict[str, ModuleType] = {
    "kafka": kafka, "kafka_messages": kafka_messages, "kafka_logs": kafka_logs, "files": files,
    "delta": delta, "demo": demo,
}


def check(settings: Settings) -> None:
    """Refuse a source that cannot be read: a UserError says what to change."""
    SOURCES[settings.source.format].check(settings)


def open_stream(spark: SparkSession, settings: Settings) -> Raw:
    """The records of the source as they come."""
    return SOURCES[settings.source.format].read(spark.readStream, settings)


def open_batch(spark: SparkSession, settings: Settings) -> Raw:
    """The records that the source holds now."""
    return SOURCES[settings.source.format].read(spark.read, settings)


def read_stream(spark: SparkSession, settings: Settings) -> DataFrame:
    """`open_stream` as a Spark frame of SCHEMA."""
    return open_stream(spark, settings).records()


def read_batch(spark: SparkSession, settings: Settings) -> DataFrame:
    """`open_batch` as a Spark frame of SCHEMA."""
    return open_batch(spark, settings).records()
