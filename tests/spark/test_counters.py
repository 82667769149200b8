"""The counters of a run agree with what it has archived, also after times without records."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from app.config.settings import Settings
from app.engine.assignment import plan
from app.run.service import Service, run
from app.run.shutdown import Stopping
from app.show.metrics import health
from state.jobs import BY_DEFAULT
from tests.spark import repeated_tasks
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


def test_records_of_tasks_that_are_repeated_are_counted_once(tmp_path: Path) -> None:
    """In a session of its own: one that has lost its executor is not what it was."""
    done = subprocess.run(
        [sys.executable, "-m", repeated_tasks.__name__, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["rows"] == [3_000]
    assert max(found["tasks"].values()) > 1, found  # some were repeated
    assert found["counted"] == 3_000


def waiting(service: Service) -> bool:
    """Whether every query has reported that it waits for records."""
    reports = [query.lastProgress for query in service.queries.every]
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
    return [figures.events for figures in service.progress.figures]


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
