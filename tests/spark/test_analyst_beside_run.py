"""Others keep the tables of a run in order while it works, and between two runs: every row is as if they
had not, and commands work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from app.cli import main
from app.config.settings import Settings
from app.demo.generator.write import write_files
from app.run.service import run
from app.tables.small_files import path_in
from tests.support.analyst import OPERATIONS, at_work
from tests.support.traces import demo_trace, every_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = 17_000
BY_SPARK = (
    "OPTIMIZE {table} ZORDER BY (broker)",
    "ALTER TABLE {table} ALTER COLUMN broker COMMENT 'which broker'",
    "ALTER TABLE {table} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)",
    "ALTER TABLE {table} ADD CONSTRAINT known CHECK (cluster <> 'nobody')",
    "VACUUM {table}",
)
LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
"""Tasks that list the files of a table for `VACUUM`: 10,000 by default, however few files there are."""


def test_tables_that_others_optimize_have_the_rows_of_a_calm_run(
    spark: SparkSession,
    make_settings: Callable[..., Settings],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trace = demo_trace(EVENTS)
    write_files(trace, tmp_path / "all")
    files = sorted((tmp_path / "all").rglob("*.jsonl*"))

    def settings(name: str) -> Settings:
        return make_settings(
            source={
                "format": "files",
                "path": str(tmp_path / name / "in"),
                "options": {"maxFilesPerTrigger": "4"},
            },
            policies=trace.policies,
            commit_interval_ms=200,
            warehouse=str(tmp_path / name / "warehouse"),
        )

    def arrive(name: str, some: list[Path]) -> None:
        (tmp_path / name / "in").mkdir(parents=True, exist_ok=True)
        for file in some:
            (tmp_path / name / "in" / file.name).symlink_to(file)

    spark.conf.set(LISTING, "2")
    half = len(files) // 2
    calm, kept = settings("calm"), settings("kept")
    for part in (files[:half], files[half:]):
        arrive("calm", part)
        assert run(calm, available_now=True) == 0
        arrive("kept", part)
        with at_work(kept.warehouse) as analyst:
            assert run(kept, available_now=True) == 0
            analyst.wait_for_rounds(len(OPERATIONS))
        for name in ("events", "throttle_events"):
            for statement in BY_SPARK:
                spark.sql(statement.format(table=f"delta.`{path_in(kept.location, name)}`"))
            spark.sql(f"ALTER TABLE delta.`{path_in(kept.location, name)}` DROP CONSTRAINT known")
    spark.conf.unset(LISTING)
    expected = every_row(calm.warehouse)
    assert every_row(kept.warehouse) == expected
    capsys.readouterr()
    for words in (("maintain",), ("quality",), ("query", "SELECT count(*) FROM events")):
        assert main([*words, "--warehouse", kept.warehouse]) == 0, capsys.readouterr()
    assert every_row(kept.warehouse) | {"quality_results": []} == expected | {"quality_results": []}
