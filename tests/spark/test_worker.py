"""What a task of Spark reads, in a worker that has settled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from app.run.session import DAEMON

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _kinds_of_input(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import gc

    from app.sources.worker import AcknowledgedAtOnce, settle

    here = [one for one in gc.get_objects() if isinstance(one, AcknowledgedAtOnce)]
    settle()  # which hides what lives from the collector
    for batch in batches:
        yield pa.record_batch([pa.array([bool(here)] * batch.num_rows)], names=["acknowledged"])


def test_the_next_task_of_a_worker_acknowledges_what_it_reads(spark: SparkSession) -> None:
    frame = spark.range(3, numPartitions=1).mapInArrow(_kinds_of_input, "acknowledged boolean")  # type: ignore[arg-type]
    frame.toArrow()
    assert frame.toArrow().to_pydict() == {"acknowledged": [True] * 3}


def _forked_from(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import os
    import sys

    import psutil

    daemon = psutil.Process(os.getppid()).cmdline()
    for batch in batches:
        loaded = "app.setup.warm" in sys.modules
        yield pa.record_batch(
            [pa.array([(daemon[2] if loaded else "")] * batch.num_rows)], names=["x"]
        )


def test_a_worker_on_this_machine_begins_with_the_compiled_cores(spark: SparkSession) -> None:
    frame = spark.range(1, numPartitions=1).mapInArrow(_forked_from, "x string")  # type: ignore[arg-type]
    assert frame.toArrow().to_pydict() == {"x": [DAEMON]}
