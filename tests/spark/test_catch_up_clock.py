"""Whether a batch reaches what its source had, and what its tasks are told of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from app.config.settings import Settings
from app.engine.catch_up import CatchUp
from app.engine.messages import PACKED, MessageKind
from app.engine.operators import limits_of, operators
from app.engine.routing import packer
from app.engine.ticks import DRAINED, REACHED, TICK
from app.sources.raw import SCHEMA, Shares
from app.tables import checkpoints
from app.tables.small_files import write_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeSettings = Callable[..., Settings]
QUERY = "govern"
MOST = Shares(100, with_topic=False)
PLANNED_MS = 1_760_000_000_000


class Checkpoint:
    """A checkpoint as Spark leaves it, batch by batch; each is planned 4 s after the one before."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark, self._settings, self.next = spark, settings, 0
        checkpoints.application_id(settings.location, QUERY)
        self._write("sources/0/0", "\0v1", self._offset({"p0": 1000, "p1": 0, "p2": 50}))
        self._ends = {"p0": 1000, "p1": 0, "p2": 50}

    def plan(self, **taken: int) -> None:
        """Spark plans a batch that takes so many records of partitions."""
        self._ends = {name: end + taken.get(name, 0) for name, end in self._ends.items()}
        self.plan_to(self._offset(self._ends))

    def plan_to(self, *ends: str, watermark_ms: int = 55_000) -> None:
        """Spark plans a batch that ends at these offsets of its sources."""
        about = {
            "batchWatermarkMs": watermark_ms,
            "batchTimestampMs": PLANNED_MS + 4_000 * self.next,
        }
        self._write(f"offsets/{self.next}", f"v1\n{json.dumps(about)}", "\n".join(ends))
        self.next += 1

    def run(self, catch_up: CatchUp) -> tuple[int, int, int]:
        """Run the planned batch; up to which plan silent keys are moved in it (s after the first, -1
        for none), where clocks stand (ms), and whether it calls all shards."""
        batch = self.next - 1
        catch_up.begin(batch)
        context = self._spark.sparkContext
        reached, drained, tick = (
            int(context.getLocalProperty(name) or 0) for name in (REACHED, DRAINED, TICK)
        )
        catch_up.end(batch)
        self._write(f"commits/{batch}", "v1", '{"nextBatchWatermarkMs":55000}')
        return (reached - PLANNED_MS) // 1000 if reached else -1, drained, tick

    def _offset(self, ends: dict[str, int]) -> str:
        return json.dumps({"events": {name.removeprefix("p"): end for name, end in ends.items()}})

    def _write(self, file: str, head: str, rest: str) -> None:
        place = f"{checkpoints.FOLDER}/{QUERY}/{file}"
        write_text(self._settings.location, place, f"{head}\n{rest}")


@pytest.fixture
def settings(make_settings: MakeSettings, tmp_path: Path) -> Settings:
    return make_settings(source={"format": "files", "path": str(tmp_path)})


@pytest.fixture
def checkpoint(spark: SparkSession, settings: Settings) -> Checkpoint:
    return Checkpoint(spark, settings)


def test_silent_keys_are_moved_to_the_last_plan_that_left_nothing(
    spark: SparkSession, settings: Settings, checkpoint: Checkpoint
) -> None:
    catch_up = CatchUp(spark, settings, QUERY, MOST, bounded=False)
    found = []
    for taken in (
        {"p0": 49, "p1": 50},  # leaves records: Spark's rounding costs less than one a partition
        {"p0": 49, "p1": 49, "p2": 1},
        {"p0": 5, "p1": 4},
        {"p0": 1},
        {"p0": 100},
        {},
    ):
        checkpoint.plan(**taken)
        found.append(checkpoint.run(catch_up)[0])
    assert found == [-1, -1, -1, 8, 12, 12]


def test_another_run_finds_the_plan_in_the_logs_and_a_repetition_the_same(
    spark: SparkSession, settings: Settings, checkpoint: Checkpoint
) -> None:
    for taken in ({"p0": 5}, {"p0": 60, "p1": 40}, {"p0": 60, "p1": 40}):
        checkpoint.plan(**taken)
        checkpoint.run(CatchUp(spark, settings, QUERY, MOST, bounded=False))
    checkpoint.plan(p1=1)
    # and the run is killed, twice
    found = [CatchUp(spark, settings, QUERY, MOST, bounded=False) for _ in range(2)]
    assert [checkpoint.run(one)[0] for one in found] == [0, 0]


def test_in_a_run_with_an_end_nothing_is_silent(
    spark: SparkSession, settings: Settings, checkpoint: Checkpoint
) -> None:
    catch_up = CatchUp(spark, settings, QUERY, MOST, bounded=True)
    for _ in range(3):
        checkpoint.plan(p0=1)
        assert checkpoint.run(catch_up) == (-1, 0, 0)
    # behind the last record Spark plans a batch without any
    checkpoint.plan()
    assert checkpoint.run(catch_up) == (-1, 0, 0)


def test_a_batch_of_an_earlier_run_is_measured_by_the_limit_it_was_planned_under(
    spark: SparkSession, settings: Settings, checkpoint: Checkpoint
) -> None:
    CatchUp(spark, settings, QUERY, MOST, bounded=False)
    checkpoint.plan(p0=50, p1=50)  # and the run is killed, twice
    larger = Shares(1000, with_topic=False)
    CatchUp(spark, settings, QUERY, larger, bounded=False)
    again = CatchUp(spark, settings, QUERY, larger, bounded=False)
    for reached in (-1, -1, 4):
        assert checkpoint.run(again)[0] == reached
        checkpoint.plan(p0=50, p1=50)
    assert checkpoints.require_identity(settings.location, QUERY).most_records == 1000


def test_all_shards_are_called_each_time_that_silence_may_have_moved_a_key(
    spark: SparkSession, settings: Settings, checkpoint: Checkpoint
) -> None:
    catch_up = CatchUp(spark, settings, QUERY, MOST, bounded=False)
    found = []
    for _ in range(7):
        checkpoint.plan(p0=1)
        found.append(checkpoint.run(catch_up)[2])
    assert found == [1, 0, 0, 1, 0, 0, 1]


def test_a_drained_input_moves_all_clocks_once(
    spark: SparkSession, settings: Settings, checkpoint: Checkpoint
) -> None:
    checkpoint.plan(p0=1)
    checkpoint.run(CatchUp(spark, settings, QUERY, MOST, bounded=True))
    checkpoint.plan_to("{}", watermark_ms=77_000)
    drain = CatchUp(spark, settings, QUERY, MOST, bounded=True)
    assert checkpoint.run(drain)[1] == 77_000
    checkpoint.plan(p0=1)
    assert checkpoint.run(drain)[1] == 0


@pytest.mark.parametrize("bounded", [False, True])
def test_polls_leave_files_behind_if_their_plan_says_so(
    bounded: bool, spark: SparkSession, make_settings: MakeSettings
) -> None:
    """In a run with an end, too: what it asks is there now."""
    groups = {"cluster": "c", "format": "kafka_groups", "options": {"kafka.bootstrap.servers": "b"}}
    settings = make_settings(source=[groups])
    checkpoint, found = Checkpoint(spark, settings), []
    catch_up = CatchUp(spark, settings, QUERY, None, bounded=bounded)
    for more in (True, False, True, True):
        checkpoint.plan_to(json.dumps({"positions": {"f": [checkpoint.next, 1]}, "more": more}))
        found.append(checkpoint.run(catch_up)[0])
    assert found == [-1, -1, 4, 4]


@pytest.mark.parametrize(
    ("options", "size", "full"),
    [
        ({"maxFilesPerTrigger": "2"}, 1, True),
        ({"maxFilesPerTrigger": "3"}, 1, False),
        ({"maxBytesPerTrigger": "100"}, 25, True),
        ({"maxBytesPerTrigger": "101"}, 25, False),
        ({}, 1000, False),
    ],
)
def test_files_leave_others_behind_if_a_trigger_is_full(
    spark: SparkSession,
    make_settings: MakeSettings,
    tmp_path: Path,
    options: dict[str, str],
    size: int,
    full: bool,
) -> None:
    source = {"format": "files", "path": str(tmp_path), "options": options}
    settings = make_settings(source=source)
    checkpoint = Checkpoint(spark, settings)
    catch_up = CatchUp(spark, settings, QUERY, None, bounded=False)
    for batch in range(2):
        paths = [tmp_path / f"{batch}-{n}.jsonl" for n in range(2)]
        entries = []
        for path in paths:
            path.write_text("x" * size)
            entries.append(json.dumps({"path": path.as_uri(), "timestamp": 1, "batchId": batch}))
        place = f"{checkpoints.FOLDER}/{QUERY}/sources/0/{batch}"
        write_text(settings.location, place, "\n".join(["v1", *entries]))
        checkpoint.plan_to(json.dumps({"logOffset": batch}))
        reached = checkpoint.run(catch_up)[0]
    assert reached == (-1 if full else 0)


def test_partitions_of_several_topics_are_told_apart() -> None:
    assert Shares(1, with_topic=True).name("events", "3") == "events-3"
    assert Shares(1, with_topic=False).name("events", "3") == "3"


def test_a_tick_calls_every_shard_once(spark: SparkSession, settings: Settings) -> None:
    route = operators(settings, ["rate_limits"])["rate_limits"].route
    pack = packer({"rate_limits": route}, 2, limits_of(settings), labels={"rate_limits": (7, 9)})
    rows = spark.createDataFrame([(b"", "0", n) for n in range(4)], SCHEMA).repartition(2)
    found = []
    for tick in ("1", "0"):
        spark.sparkContext.setLocalProperty(TICK, tick)
        try:
            packed = rows.mapInArrow(pack, PACKED).toArrow().to_pylist()
        finally:
            spark.sparkContext.setLocalProperty(TICK, None)  # type: ignore[arg-type]
        found.append([(r["job"], r["shard"], r["kind"], r["ts"], r["blob"]) for r in packed])
    called = [("rate_limits", label, MessageKind.CLOCK, None, b"") for label in (7, 9)]
    assert found == [called, []]
