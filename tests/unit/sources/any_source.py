"""What tests share of any source."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa

from app import sources
from app.config.settings import Settings
from app.sources.raw import SCHEMA, Batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def streamed(spark: SparkSession, settings: Settings, checkpoint: Path) -> list[pa.Table]:
    """What each micro-batch of a stream to the end of the source gives."""
    batches: list[pa.Table] = []
    query = (
        sources.open_stream(spark, settings, "govern", ending=True)
        .through(as_they_are, SCHEMA)
        .writeStream.foreachBatch(lambda frame, _: batches.append(frame.toArrow()))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return batches


def at_once(spark: SparkSession, settings: Settings) -> pa.Table:
    """The records that the source holds now."""
    with TemporaryDirectory() as folder:  # with the checkpoint of a query that begins
        return pa.concat_tables(streamed(spark, settings, Path(folder, "checkpoint")))


def as_they_are(batches: Batches) -> Batches:
    """The records as they come."""
    return batches
