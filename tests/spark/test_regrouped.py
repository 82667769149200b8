"""The set of jobs changes between runs: every job has judged every record once all the same."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from app.config.settings import Settings
from app.errors import UserError
from app.run.service import run
from app.tables import checkpoints
from benchmarks.generator.write import write_files
from state.jobs import BY_DEFAULT
from tests.support.traces import demo_trace, every_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = 18_000
PER_BATCH = 15
ALL = [list(BY_DEFAULT)]
FOUR = [[job for job in BY_DEFAULT if job != "entry_cache"]]
APART = [["chunks", "backlog", "entry_cache"], ["rate_limits", "producer_ids"]]
MakeSettings = Callable[..., Settings]
Start = Callable[[list[list[str]], int], None]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of the demo's fleet, in a folder."""
    folder = tmp_path_factory.mktemp("trace")
    write_files(demo_trace(EVENTS), folder / "events")
    return folder / "events"


def files(trace: Path) -> list[Path]:
    """The files in the order in which a stream takes them."""
    return sorted(trace.iterdir(), key=lambda file: (file.stat().st_mtime_ns, file.name))


def starter(make: MakeSettings, trace: Path, folder: Path) -> Start:
    """Starts a run with these queries when so many batches of files are there, to their end."""
    (folder / "in").mkdir()

    def start(queries: list[list[str]], batches: int) -> None:
        for file in files(trace)[: batches * PER_BATCH]:
            if not (folder / "in" / file.name).exists():
                shutil.copy2(file, folder / "in" / file.name)
        assert run(configured(make, folder, queries), available_now=True) == 0

    return start


def configured(make: MakeSettings, folder: Path, queries: list[list[str]]) -> Settings:
    return make(
        warehouse=str(folder / "warehouse"),
        queries=queries,
        policies=demo_trace(EVENTS).policies,
        source={
            "format": "files",
            "path": str(folder / "in"),
            "options": {"maxFilesPerTrigger": str(PER_BATCH)},
        },
    )


def tables(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    return every_row(str(folder / "warehouse"))


@pytest.fixture(scope="module")
def unchanged(
    trace: Path, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[tuple[Any, ...]]]:
    """The tables of a run that never changed."""
    from app.config.settings import load_settings

    folder = tmp_path_factory.mktemp("unchanged")

    def make(**keys: Any) -> Settings:
        return load_settings(None, {"partitions": 2, "alerts": {"interval_ms": None}, **keys})

    starter(make, trace, folder)(ALL, len(files(trace)))
    found = tables(folder)
    assert {
        "throttle_events",
        "chunk_events",
        "producer_id_decisions",
        "backlog_checks",
        "cache_stats",
        "events",
        "quarantine",
    } <= set(found)
    return found


def test_every_job_judges_every_record_once(
    unchanged: dict[str, list[tuple[Any, ...]]],
    trace: Path,
    spark: SparkSession,
    make_settings: MakeSettings,
    tmp_path: Path,
) -> None:
    """A job is left out, comes back and is left out again; one is added; a group is taken apart."""
    start = starter(make_settings, trace, tmp_path)
    start(FOUR, 1)
    start(APART, 2)
    start(FOUR, 3)
    start(ALL, len(files(trace)))

    found = tables(tmp_path)
    assert found.keys() == unchanged.keys()
    for name, rows in unchanged.items():
        assert found[name] == rows, name


def test_tables_without_the_checkpoint_that_filled_them_are_refused(
    trace: Path, spark: SparkSession, make_settings: MakeSettings, tmp_path: Path
) -> None:
    start = starter(make_settings, trace, tmp_path)
    start(ALL, 1)
    before = tables(tmp_path)
    for query in ("govern", "archive"):
        folder = Path(
            checkpoints.location(configured(make_settings, tmp_path, ALL).location, query)
        )
        folder.rename(tmp_path / query)

        with pytest.raises(UserError) as refused:
            start(ALL, 1)

        first, second = str(refused.value).splitlines()
        assert first.endswith(
            f"the checkpoint {folder} that they come from is missing"
            if query == "govern"
            else f"{folder}/{checkpoints.IDENTITY} is gone"
        )
        assert second == (
            "put it back from a copy of the same time as the tables, or take another warehouse"
        )
        (tmp_path / query).rename(folder)
    start(ALL, 1)
    assert tables(tmp_path) == before
