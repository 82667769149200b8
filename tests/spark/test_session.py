"""The Spark session: what Weir relies on is set, and the Delta and Kafka jars fit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from app.jars import coordinates
from app.run.session import NEVER_LOST, PREFERRED, REQUIRED
from tests.crash.clock import shifted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_confs_that_results_depend_on_are_in_force(spark: SparkSession) -> None:
    assert {key: spark.conf.get(key) for key in REQUIRED} == REQUIRED
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_confs_that_affect_speed_are_in_force(spark: SparkSession) -> None:
    assert {key: spark.conf.get(key) for key in PREFERRED} == PREFERRED


def test_a_driver_that_is_its_own_executor_is_never_lost(spark: SparkSession) -> None:
    assert {key: spark.conf.get(key) for key in NEVER_LOST} == NEVER_LOST


def test_delta_tables_are_written_and_read_back(spark: SparkSession, tmp_warehouse: str) -> None:
    spark.range(3).write.format("delta").save(tmp_warehouse)
    spark.range(3, 5).write.format("delta").mode("append").save(tmp_warehouse)
    rows = spark.read.format("delta").load(tmp_warehouse).orderBy("id").toArrow()
    assert rows.to_pydict() == {"id": [0, 1, 2, 3, 4]}


def test_the_kafka_source_is_there(spark: SparkSession) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "events"}
    frame = spark.readStream.format("kafka").options(**options).load()
    assert "value: binary" in frame._jdf.schema().treeString()


def test_jar_coordinates_follow_the_installed_versions() -> None:
    assert coordinates() == (
        "io.delta:delta-spark_4.0_2.13:4.4.0",
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",
    )


STEPPED = """
import struct, sys, time
from app.config.settings import load_settings
from app.run.session import build_session

spark = build_session(load_settings(overrides={"partitions": 1}), "weir-tests")
spark.range(1).count()
with open(sys.argv[1], "r+b") as file:
    file.write(struct.pack("=q", 3600))
time.sleep(10)
print(spark.range(5).count())
"""
SOONER = (
    "--conf spark.executor.heartbeatInterval=3s --conf spark.network.timeoutInterval=1s"
    " --conf spark.executor.heartbeat.maxFailures=1 pyspark-shell"
)
"""In place of ten seconds, a minute and ten minutes."""


def test_a_clock_that_steps_ahead_ends_no_local_session(tmp_path: Path) -> None:
    """By default Spark takes its only executor for lost, which then exits after ten minutes. So
    it is after a laptop has slept."""
    done = subprocess.run(
        [sys.executable, "-c", STEPPED, str(tmp_path / "clock")],
        env={**os.environ, **shifted(tmp_path, 0), "PYSPARK_SUBMIT_ARGS": SOONER},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (0, "5\n"), done.stderr
    assert "heartbeat" not in done.stderr
