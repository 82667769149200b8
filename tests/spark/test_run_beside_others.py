"""Beside a run others judge alerts on its tables, maintain them, or keep them in order with tools of
their own: every row is as if they had not. All runs take the same batches of the same trace."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from deltalake import DeltaTable

from app.cli import main
from app.config.settings import Settings, load_settings
from app.read.relations import Warehouse
from app.run.maintenance import merging
from app.run.maintenance.compaction import compact
from app.run.maintenance.upkeep import MaintainedTable, upkeep
from app.run.service import run
from app.tables.small_files import path_in
from benchmarks.generator.write import write_files
from tests.support.analyst import OPERATIONS, at_work
from tests.support.traces import demo_trace, every_row
from tests.unit.run.maintenance.tables import LATER_MS, fill, found, opened, plain, rows
from tests.unit.show.alerts.receiver import receiving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = 17_000
PER_BATCH = 8
BY_SPARK = (
    "OPTIMIZE {table} ZORDER BY (broker)",
    "ALTER TABLE {table} ALTER COLUMN broker COMMENT 'which broker'",
    "ALTER TABLE {table} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)",
    "ALTER TABLE {table} ADD CONSTRAINT known CHECK (cluster <> 'nobody')",
    "VACUUM {table}",
)
LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
"""Tasks that list the files of a table for `VACUUM`: 10,000 by default, however few files there are."""
SOUND: dict[str, Any] = {
    "name": "paused",
    "severity": "info",
    "now": "topic_throttle_stats",
    "labels": ["cluster", "topic"],
    "summary": "{topic} was paused {value:.0f} times",
    "sql": "SELECT cluster, topic, window_start_ms AS start_ms, 2 * window_ms + window_start_ms AS"
    " end_ms, limited_times AS value FROM topic_throttle_stats WHERE limited_times > 0",
}
BROKEN = {**SOUND, "name": "broken", "sql": "SELECT nonsense FROM topic_throttle_stats"}


class Site(NamedTuple):
    """A folder with a warehouse, and a source that gets files of the trace."""

    folder: Path
    settings: Settings
    trace: list[Path]

    def arrive(self, first: int, last: int | None = None) -> None:
        """Some files of the trace, by their numbers."""
        for file in self.trace[first:last]:
            (self.folder / "in" / file.name).symlink_to(file)


Make = Callable[..., Site]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Makes sites, by their names; keywords are keys of the configuration."""
    trace = demo_trace(EVENTS)
    folder = tmp_path_factory.mktemp("sites")
    write_files(trace, folder / "all")
    files = sorted((folder / "all").rglob("*.jsonl*"))
    assert len(files) > 5 * PER_BATCH

    def made(name: str, **keys: Any) -> Site:
        (folder / name / "in").mkdir(parents=True)
        source = {"format": "files", "path": str(folder / name / "in")}
        overrides = {
            "source": {**source, "options": {"maxFilesPerTrigger": str(PER_BATCH)}},
            "policies": trace.policies,
            "commit_interval_ms": 200,
            "warehouse": str(folder / name / "warehouse"),
            "partitions": 2,
            "alerts": None,
        }
        return Site(folder / name, load_settings(None, {**overrides, **keys}), files)

    return made


@pytest.fixture(scope="module")
def calm(spark: SparkSession, site: Make) -> Settings:
    """A run without a restart whose warehouse nobody else has touched."""
    there = site("calm")
    there.arrive(0)
    assert run(there.settings, available_now=True) == 0
    return there.settings


@pytest.fixture(scope="module")
def expected(calm: Settings) -> dict[str, list[tuple[Any, ...]]]:
    """Its rows."""
    return every_row(calm.warehouse)


HALVES = ((0, 3 * PER_BATCH), (3 * PER_BATCH, None))
"""Of the files, for a run and its restart; with the batches of a run without one."""


def test_a_run_tells_of_alerts_and_a_broken_rule_or_sink_does_not_stop_it(
    calm: Settings, expected: dict[str, list[tuple[Any, ...]]], site: Make, capfd: Any
) -> None:
    with receiving() as receiver:
        alerts = {
            "rules": [BROKEN, SOUND],
            "rule_files": [],
            "interval_ms": 200,
            "sinks": [
                {"type": "webhook", "url": receiver.url},
                {"type": "stdout"},
                {"type": "webhook", "url": "http://127.0.0.1:1", "retries": 0},
            ],
        }
        there = site("told", alerts=alerts)
        there.arrive(0)
        told = there.settings
        assert run(told, available_now=True) == 0
        sent = [alert for body in receiver.bodies() for alert in body["alerts"]]
    assert every_row(told.warehouse) == expected
    shown = capfd.readouterr()
    assert 'alert rule broken: Binder Error: Referenced column "nonsense"' in shown.err
    assert "webhook http://127.0.0.1:1: cannot be reached" in shown.err
    written = Warehouse(told.warehouse).open("alerts")
    assert written is not None and Warehouse(calm.warehouse).open("alerts") is None
    firing = [row for row in written.to_pyarrow_table().to_pylist() if row["state"] == "firing"]
    assert firing and {row["alert"] for row in firing} == {"paused"}
    assert sorted(a["number"] for a in sent if a["state"] == "firing") == sorted(
        row["number"] for row in firing
    )
    assert all(f"{row['summary']}\n" in shown.out for row in firing)


@contextmanager
def maintained(settings: Settings) -> Iterator[list[MaintainedTable]]:
    """Rounds of maintenance, one after the other, until the end of the body."""
    done: list[MaintainedTable] = []
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.05):
            if Path(settings.warehouse, "_weir").is_dir():
                done.extend(upkeep(Warehouse.of(settings.location), settings.maintenance).tables)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join()


def test_a_run_and_its_restart_have_the_same_rows_with_maintenance(
    calm: Settings,
    expected: dict[str, list[tuple[Any, ...]]],
    site: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(merging, "SETTLED_MS", 0)
    monkeypatch.setattr(merging, "MOST", 2)
    there = site("maintained")
    kept = there.settings
    for half in HALVES:
        there.arrive(*half)
        with maintained(kept) as done:
            assert run(kept, available_now=True) == 0
        assert [each.problem for each in done if each.problem] == []
        assert any(each.files_after < each.files for each in done)
    upkeep(Warehouse.of(kept.location, kept.owners), kept.maintenance)
    assert every_row(kept.warehouse) == expected
    few, many = (len(DeltaTable(path_in(s.location, "events")).file_uris()) for s in (kept, calm))
    assert few < many


def test_tables_that_others_optimize_have_the_rows_of_a_calm_run(
    spark: SparkSession,
    expected: dict[str, list[tuple[Any, ...]]],
    site: Make,
    capsys: pytest.CaptureFixture[str],
) -> None:
    there = site("optimized")
    kept = there.settings
    spark.conf.set(LISTING, "2")
    for half in HALVES:
        there.arrive(*half)
        with at_work(kept.warehouse, resting=True) as analyst:
            assert run(kept, available_now=True) == 0
            analyst.wait_for_rounds(len(OPERATIONS))
        for name in ("events", "throttle_events"):
            for statement in BY_SPARK:
                spark.sql(statement.format(table=f"delta.`{path_in(kept.location, name)}`"))
            spark.sql(f"ALTER TABLE delta.`{path_in(kept.location, name)}` DROP CONSTRAINT known")
    spark.conf.unset(LISTING)
    assert every_row(kept.warehouse) == expected
    capsys.readouterr()
    for words in (("maintain",), ("quality",), ("query", "SELECT count(*) FROM events")):
        assert main([*words, "--warehouse", kept.warehouse]) == 0, capsys.readouterr()
    assert every_row(kept.warehouse) | {"quality_results": []} == expected | {"quality_results": []}


def test_spark_reads_a_maintained_table(
    spark: SparkSession, make_settings: Callable[..., Settings]
) -> None:
    settings = make_settings()
    name = "throttle_events"
    fill(settings, name, range(9))
    table = opened(settings, name)
    compact(table, settings.maintenance, LATER_MS)
    table.delta.create_checkpoint()
    for commit in Path(table.location, "_delta_log").glob("*.json"):
        if commit.name != f"{table.delta.version():020}.json":
            commit.unlink()
    fill(settings, name, range(9, 10))
    assert spark.read.format("delta").load(table.location).count() == 30
    assert plain(found(settings, name)) == plain(rows(name, range(30)))
