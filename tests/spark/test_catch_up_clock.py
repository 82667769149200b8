"""How far a batch may move the stream's clock while a source lags."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from app.config.settings import Settings
from app.engine.bounded import BOUND, UNKNOWN, bounded
from app.engine.catch_up import CatchUp
from app.engine.messages import PACKED, MessageKind
from app.engine.operators import limits_of, operators
from app.engine.routing import packer
from app.sources.raw import SCHEMA, Shares
from app.tables import checkpoints
from app.tables.small_files import write_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeSettings = Callable[..., Settings]
QUERY = "govern"
MOST = Shares(100, with_topic=False)
EVENT = {
    "event_type": "broker_started",
    "source_feed": "f",
    "cluster": "c",
    "broker": "b",
    "ts_mono_ns": 1,
}


class Checkpoint:
    """A checkpoint as Spark leaves it, batch by batch, and the clock's bound in each."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark, self._settings, self.next = spark, settings, 0
        checkpoints.application_id(settings.location, QUERY)
        self._write("sources/0/0", "\0v1", {"p0": 1000, "p1": 0, "p2": 50})
        self._ends = {"p0": 1000, "p1": 0, "p2": 50}

    def plan(self, **taken: int) -> None:
        """Spark plans a batch that takes so many records of partitions."""
        self._ends = {name: end + taken.get(name, 0) for name, end in self._ends.items()}
        self._write(f"offsets/{self.next}", 'v1\n{"batchWatermarkMs":0}', self._ends)
        self.next += 1

    def run(self, catch_up: CatchUp, **latest_ms: int) -> str | None:
        """Run the planned batch, whose tasks return these times; its bound."""
        batch = self.next - 1
        catch_up.begin(batch)
        bound: str | None = self._spark.sparkContext.getLocalProperty(BOUND)
        one = {name.removeprefix("p"): ms for name, ms in latest_ms.items()}
        catch_up.end(batch, [pa.py_buffer(json.dumps(one).encode())])
        write_text(
            self._settings.location, f"{checkpoints.FOLDER}/{QUERY}/commits/{batch}", "v1\n{}"
        )
        return bound

    def _write(self, file: str, head: str, ends: dict[str, int]) -> None:
        content = {"events": {name.removeprefix("p"): end for name, end in ends.items()}}
        write_text(
            self._settings.location,
            f"{checkpoints.FOLDER}/{QUERY}/{file}",
            f"{head}\n{json.dumps(content)}",
        )


@pytest.fixture
def settings(make_settings: MakeSettings) -> Settings:
    return make_settings()


@pytest.fixture
def checkpoint(spark: SparkSession, settings: Settings) -> Checkpoint:
    return Checkpoint(spark, settings)


def test_the_slowest_partition_of_a_batch_that_leaves_records_bounds_the_clock(
    spark: SparkSession, settings: Settings, checkpoint: Checkpoint
) -> None:
    catch_up = CatchUp(spark, settings.location, QUERY, MOST)
    bounds = []
    for taken, returned in (
        ({"p0": 49, "p1": 50}, {"p0": 7_000, "p1": 900}),  # nothing is known of either
        ({"p0": 49, "p1": 50}, {"p0": 9_000, "p1": 800}),  # a time that goes back is not taken
        ({"p0": 49, "p1": 50}, {"p0": 9_500, "p1": 3_000}),
        ({"p0": 30, "p1": 30, "p2": 40}, {"p0": 9_600, "p1": 3_100, "p2": 5}),  # a new one
        ({"p0": 98, "p1": 1, "p2": 1}, {}),
        ({"p0": 98, "p2": 2}, {}),
    ):
        checkpoint.plan(**taken)
        bounds.append(checkpoint.run(catch_up, **returned))
    assert bounds == [UNKNOWN, "900", "900", UNKNOWN, "5", "5"]


def test_a_partition_that_is_read_to_its_end_is_not_waited_for(
    spark: SparkSession, settings: Settings, checkpoint: Checkpoint
) -> None:
    catch_up = CatchUp(spark, settings.location, QUERY, MOST)
    checkpoint.plan(p0=40, p1=40, p2=20)
    assert checkpoint.run(catch_up, p0=7_000, p1=900, p2=8_000) == UNKNOWN
    checkpoint.plan(p0=50, p2=50)
    assert checkpoint.run(catch_up) == "7000"


@pytest.mark.parametrize(
    "taken",
    [
        {"p0": 49, "p1": 49},  # Spark's rounding costs less than a record for each partition
        {"p0": 100},  # the only one that is behind is the slowest
        {},
    ],
)
def test_a_batch_that_leaves_no_other_partition_behind_has_no_bound(
    spark: SparkSession, settings: Settings, checkpoint: Checkpoint, taken: dict[str, int]
) -> None:
    catch_up = CatchUp(spark, settings.location, QUERY, MOST)
    checkpoint.plan(p0=49, p1=50)
    assert checkpoint.run(catch_up, p0=7_000, p1=900) == UNKNOWN
    checkpoint.plan(**taken)
    assert checkpoint.run(catch_up) is None


def test_a_batch_of_an_earlier_run_is_measured_by_the_limit_it_was_planned_under(
    spark: SparkSession, settings: Settings, checkpoint: Checkpoint
) -> None:
    CatchUp(spark, settings.location, QUERY, MOST)
    checkpoint.plan(p0=50, p1=50)  # and the run is killed, twice
    larger = Shares(1000, with_topic=False)
    CatchUp(spark, settings.location, QUERY, larger)
    again = CatchUp(spark, settings.location, QUERY, larger)
    assert checkpoint.run(again, p0=7_000, p1=900) == UNKNOWN
    checkpoint.plan(p0=50, p1=50)
    assert checkpoint.run(again) is None
    assert checkpoints.require_identity(settings.location, QUERY).most_records == 1000


def test_a_batch_of_a_version_that_kept_no_limit_is_taken_to_leave_records(
    spark: SparkSession, settings: Settings, checkpoint: Checkpoint
) -> None:
    checkpoint.plan(p0=1, p1=1)
    assert checkpoint.run(CatchUp(spark, settings.location, QUERY, MOST)) == UNKNOWN


def test_partitions_of_several_topics_are_told_apart() -> None:
    assert Shares(1, with_topic=True).name("events", "3") == "events-3"
    assert Shares(1, with_topic=False).name("events", "3") == "3"


@pytest.mark.parametrize(
    ("bound", "times"),
    [
        (None, {MessageKind.DATA: 5_000}),
        ("4000", {MessageKind.DATA: 4_000, MessageKind.CLOCK: 4_000}),
        ("6000", {MessageKind.DATA: 5_000, MessageKind.CLOCK: 5_000}),
        (UNKNOWN, {MessageKind.DATA: None, MessageKind.CLOCK: None}),
    ],
)
def test_a_task_moves_the_clock_up_to_the_bound_and_returns_the_latest_time(
    spark: SparkSession, settings: Settings, bound: str | None, times: dict[MessageKind, int | None]
) -> None:
    values = [json.dumps({**EVENT, "ts_wall_ms": ms}).encode() for ms in (3_000, 5_000, 4_500)]
    rows = [(value, "7", number) for number, value in enumerate(values)]
    route = operators(settings, ["rate_limits"])["rate_limits"].route
    pack = bounded(packer({"rate_limits": route}, 2, limits_of(settings)))
    spark.sparkContext.setLocalProperty(BOUND, bound)  # type: ignore[arg-type]
    try:
        packed = spark.createDataFrame(rows, SCHEMA).coalesce(1).mapInArrow(pack, PACKED).toArrow()
    finally:
        spark.sparkContext.setLocalProperty(BOUND, None)  # type: ignore[arg-type]
    found = packed.to_pylist()
    jobs = {MessageKind.DATA: "rate_limits", MessageKind.CLOCK: ""}
    assert all(row["job"] == jobs[row["kind"]] for row in found)
    assert {row["kind"]: row["ts"] and int(row["ts"].timestamp() * 1000) for row in found} == times
    assert [row["blob"] for row in found if row["kind"] == MessageKind.CLOCK] == (
        [] if bound is None else [b'{"7": 5000}']
    )
