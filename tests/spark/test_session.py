"""The Spark session: what Weir relies on is set, and the Delta and Kafka jars fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.jars import coordinates
from app.run.session import PREFERRED, REQUIRED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_confs_that_results_depend_on_are_in_force(spark: SparkSession) -> None:
    assert {key: spark.conf.get(key) for key in REQUIRED} == REQUIRED
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_confs_that_affect_speed_are_in_force(spark: SparkSession) -> None:
    assert {key: spark.conf.get(key) for key in PREFERRED} == PREFERRED


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
