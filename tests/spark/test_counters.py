"""The counters of a run agree with what it has archived, also after times without records."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark import TaskContext

from app.config.settings import Settings
from app.engine.assignment import plan
from app.run.progress import records
from app.run.service import Service, run
from app.run.shutdown import Stopping
from app.show.metrics import health
from app.sources.raw import Raw
from state.jobs import BY_DEFAULT
from tests.support.traces import identities, punctual_trace
from tests.support.waiting import PATIENCE_S, wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeSettings = Callable[..., Settings]
RECORDS = "weir_query_records_total"
IDLE_REPORT = "spark.sql.streaming.noDataProgressEventInterval"
PARTS = (23, 2_000, 500)
"""Records that come at once, each part after a time without any."""


@pytest.fixture
def reports_often(spark: SparkSession) -> Iterator[SparkSession]:
    """A session whose queries report every 0.2 s that they wait, not every 10 s."""
    spark.conf.set(IDLE_REPORT, "200")
    yield spark
    spark.conf.unset(IDLE_REPORT)


def test_records_of_tasks_that_are_repeated_are_counted_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The first task behind the shuffle removes its files, as the loss of an executor does: Spark
    repeats every task in front of it."""
    folder, runs, lost = tmp_path / "in", tmp_path / "runs", tmp_path / "lost"
    folder.mkdir()
    runs.mkdir()
    for part in range(3):
        (folder / f"{part}.txt").write_text("a record\n" * 1_000)
    jvm = spark._jvm
    assert jvm is not None
    disks = jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager().localDirs()
    places = [Path(str(disk)) for disk in disks]

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        mkstemp(prefix=f"{TaskContext.get().partitionId()}-", dir=runs)  # type: ignore[union-attr]
        for batch in batches:
            yield batch.select(["value"])

    def lose(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if not lost.exists():
            for file in [file for place in places for file in place.glob("*/shuffle_*")]:
                file.unlink(missing_ok=True)
            lost.touch()

    frame = Raw(spark.readStream.text(str(folder))).through(read, "value string")
    behind = frame.repartition(8).mapInArrow(lose, "value string")  # type: ignore[arg-type]
    rows: list[int] = []
    query = (
        behind.writeStream.foreachBatch(lambda part, _: rows.append(part.toArrow().num_rows))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE_S)
    assert rows == [3_000]
    tasks = Counter(path.name.split("-")[0] for path in runs.iterdir())
    assert max(tasks.values()) > 1, tasks  # some were repeated
    assert sum(records(progress) for progress in query.recentProgress) == 3_000


def waiting(service: Service) -> bool:
    """Whether every query has reported that it waits for records."""
    # From inside: what a run publishes does not have this.
    reports = [query.lastProgress for query in [*service._queries.values()]]
    return bool(reports) and all(p and "addBatch" not in p["durationMs"] for p in reports)


def test_records_of_which_nothing_comes_are_counted(
    spark: SparkSession, make_settings: MakeSettings, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"event_type": "none"}\n' * 1_000)
    source = {"format": "files", "path": str(folder)}
    settings = make_settings(source=source)
    assert run(settings, available_now=True) == 0
    (file,) = Path(settings.warehouse, health.FOLDER).iterdir()
    assert json.loads(file.read_text(encoding="utf-8"))["events"] == 1_000
    assert len(identities(settings.warehouse)) == 1_000


def counted(service: Service) -> list[int]:
    """How many records each query has counted."""
    return [figures.events for figures in service._progress.figures]


@pytest.mark.parametrize("queries", [[list(BY_DEFAULT)], [list(BY_DEFAULT), ["archive"]]])
def test_records_that_come_after_a_time_without_any_are_counted(
    reports_often: SparkSession,
    make_settings: MakeSettings,
    tmp_path: Path,
    queries: list[list[str]],
) -> None:
    settings = make_settings(
        source={"format": "files", "path": str(tmp_path / "in")},
        queries=queries,
        commit_interval_ms={"events": 0},
    )
    folder = tmp_path / "in"
    folder.mkdir()
    lines = [line for part in punctual_trace(sum(PARTS) + 20_000).slices() for line in part.lines()]
    stopping, read = Stopping(), 0
    service = Service(reports_often, settings, plan(settings).queries, False, stopping)
    thread = threading.Thread(target=service.work)
    thread.start()
    try:
        for number, count in enumerate(PARTS):
            wait_for(lambda: waiting(service))
            part = tmp_path / f"{number}.jsonl"
            part.write_bytes(b"\n".join(lines[read : read + count]) + b"\n")
            part.rename(folder / part.name)
            read += count
            wait_for(lambda so_far=read: counted(service) == [so_far] * len(queries))
    finally:
        stopping.ask()
        thread.join(90)
    assert not thread.is_alive()
    assert len(identities(settings.warehouse)) == sum(PARTS)
    for query in ("archive", "govern")[-len(queries) :]:
        file = Path(settings.warehouse, health.FOLDER, f"{query}.json")
        figures = json.loads(file.read_text(encoding="utf-8"))
        assert figures["events"] == sum(PARTS)
    samples = {(name, labels): value for name, labels, value in health.samples(settings.location)}
    read = {labels[0]: n for (name, labels), n in samples.items() if name == RECORDS}
    assert read == dict.fromkeys(("govern", "archive")[: len(queries)], sum(PARTS))
