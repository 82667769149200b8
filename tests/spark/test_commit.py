"""Rows are the same whoever commits them: delta-rs, or Spark's own Delta writer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from app.config.settings import Settings
from app.generate.write import write_files
from app.stream.run import run
from tests.support.traces import all_rows, demo_trace, identities

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = 18_000
JOBS = ("archive", "rate_limits")
"""A commit of a table takes Spark a second here; those of one job have columns of every kind."""


def rows_of_commits(table: Path) -> list[int]:
    """How many rows each commit has added, that of the table's creation apart."""
    logs = sorted((table / "_delta_log").glob("*.json"))[1:]
    added = [[json.loads(line).get("add") for line in log.read_text().splitlines()] for log in logs]
    return [sum(json.loads(add["stats"])["numRecords"] for add in adds if add) for adds in added]


def test_spark_commits_the_same_rows(
    spark: SparkSession, make_settings: Callable[..., Settings], tmp_path: Path
) -> None:
    """With several micro-batches; and a second run over the same input adds nothing."""
    trace = demo_trace(EVENTS)
    write_files(trace, tmp_path / "events")
    source = {
        "format": "files",
        "path": str(tmp_path / "events"),
        "options": {"maxFilesPerTrigger": "20"},
    }
    settings = {
        commit: make_settings(
            source=source,
            policies=trace.policies,
            commit=commit,
            warehouse=str(tmp_path / commit),
        )
        for commit in ("delta-rs", "spark")
    }
    for config in settings.values():
        assert run(config, available_now=True, jobs=JOBS) == 0
    by_deltars, by_spark = (config.warehouse for config in settings.values())
    expected = all_rows(by_deltars)
    assert all_rows(by_spark) == expected
    assert identities(by_spark) == identities(by_deltars)
    assert len(expected["throttle_events"]) > 50
    names = ("events", "quarantine", "throttle_events", "topic_throttle_stats", "limiter_stats")
    for name in names:
        ours, theirs = (DeltaTable(f"{w}/{name}") for w in (by_deltars, by_spark))
        assert ours.schema().to_arrow() == theirs.schema().to_arrow(), name
        assert ours.metadata().partition_columns == theirs.metadata().partition_columns, name
        assert 0 not in rows_of_commits(Path(by_deltars, name)), name
    versions = {name: DeltaTable(f"{by_spark}/{name}").version() for name in names}
    assert run(settings["spark"], available_now=True, jobs=JOBS) == 0
    assert {name: DeltaTable(f"{by_spark}/{name}").version() for name in names} == versions
