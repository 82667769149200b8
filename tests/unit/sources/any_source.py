"""What tests share of any source."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from app import sources
from app.config.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def streamed(spark: SparkSession, settings: Settings, checkpoint: Path) -> list[pa.Table]:
    """What each micro-batch of a stream to the end of the source gives."""
    batches: list[pa.Table] = []
    query = (
        sources.read_stream(spark, settings)
        .writeStream.foreachBatch(lambda frame, _: batches.append(frame.toArrow()))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return batches
