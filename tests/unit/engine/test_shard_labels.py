"""The labels by which Spark distributes the shards of a job."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from app.engine.shard_labels import labels
from state.jobs import DECLARED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = (*DECLARED, "", "four", "zähler-\U0001f600")


@pytest.mark.parametrize(("shards", "partitions"), [(4, 2), (16, 8), (5, 3), (400, 200), (1, 4)])
def test_spark_spreads_the_shards_of_each_job_evenly(
    spark: SparkSession, shards: int, partitions: int
) -> None:
    """By its own hash, of names of every length."""
    from pyspark.sql import functions as F

    made = [(name, label) for name in NAMES for label in labels(name, shards, partitions)]
    place = F.pmod(F.hash("job", "shard"), F.lit(partitions))
    found = spark.createDataFrame(made, "job string, shard int").select("job", place).collect()
    for name in NAMES:
        of_job = [label for job, label in made if job == name]
        assert [label % shards for label in of_job] == list(range(shards))
        counts = Counter(number for job, number in found if job == name)
        assert max(counts.values()) <= -(-shards // partitions) + (partitions > 8)
        assert len(counts) >= min(shards, partitions) * 0.95
