"""`--as-of`: each table in the newest version that was committed at or before a moment."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from app.cli import main
from app.tables.time_travel import version_at
from tests.support.throttle_rows import event, window, write

T0 = 1_767_621_600_000


def commit(warehouse: str, name: str, at_ms: int, rows: list[dict]) -> None:
    """Append rows, in a version that says it was committed at a time."""
    write(warehouse, name, rows)
    newest = max(Path(warehouse, name, "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in newest.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["timestamp"] = at_ms
    newest.write_text("".join(json.dumps(action) + "\n" for action in actions))
    os.utime(newest, (0, 0))  # a copy does not keep it


@pytest.fixture
def warehouse(tmp_warehouse):
    for i in range(5):
        commit(tmp_warehouse, "throttle_events", T0 + 1000 * i, [event(i, "mark")])
    commit(tmp_warehouse, "topic_throttle_stats", T0 + 2000, [window(0, culprit_times=1)])
    return tmp_warehouse


def count(capsys, warehouse, table, at):
    capsys.readouterr()
    code = main(
        [
            "query",
            f"SELECT count(*) AS n FROM {table}",
            "--warehouse",
            warehouse,
            "--json",
            "--as-of",
            str(at),
        ]
    )
    out, err = capsys.readouterr()
    return json.loads(out)[0]["n"] if code == 0 else err


@pytest.mark.parametrize(
    ("at", "marks", "windows"),
    [
        (T0 - 1, 0, 0),
        (T0, 1, 0),
        (T0 + 999, 1, 0),
        (T0 + 2000, 3, 1),
        (T0 + 10**9, 5, 1),
        ("2026-01-05T14:00:01Z", 2, 0),
        ("2026-01-05T16:00:03.500+02:00", 4, 1),
    ],
)
def test_each_table_is_the_newest_version_of_that_moment(warehouse, capsys, at, marks, windows):
    assert count(capsys, warehouse, "throttle_events", at) == marks
    assert count(capsys, warehouse, "topic_throttle_stats", at) == windows
    assert count(capsys, warehouse, "alerts", at) == 0


def test_a_copied_warehouse_answers_the_same(warehouse, tmp_path, capsys):
    copy = str(tmp_path / "copy")
    shutil.copytree(warehouse, copy, copy_function=shutil.copyfile)
    assert count(capsys, copy, "throttle_events", T0 + 1000) == 2


def test_ready_questions_and_the_states_of_tables_look_back_too(warehouse, capsys):
    options = ["--warehouse", warehouse, "--json", "--as-of", str(T0 + 1000)]
    assert main(["query", "freshness", *options]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["name"] == "throttle_events" and row["rows"] == 2 and row["version"] == 1
    assert row["committed"] == "2026-01-05T14:00:01Z"
    assert main(["query", "blame", *options]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_a_time_before_the_log_begins_is_told(warehouse, capsys):
    path = f"{warehouse}/throttle_events"
    table = DeltaTable(path)
    table.create_checkpoint()
    for version in range(4):
        Path(path, "_delta_log", f"{version:020}.json").unlink()
    assert "begins after that time, at version 4" in count(
        capsys, warehouse, "throttle_events", T0 + 1000
    )
    assert count(capsys, warehouse, "throttle_events", T0 + 4000) == 5


def test_a_file_that_vacuum_removed_is_told(warehouse, capsys):
    path = Path(warehouse, "throttle_events")
    DeltaTable(str(path)).optimize.compact()
    DeltaTable(str(path)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert len(list(path.glob("*.parquet"))) == 1
    assert "removed by VACUUM" in count(capsys, warehouse, "throttle_events", T0 + 2000)
    assert count(capsys, warehouse, "throttle_events", 2**53) == 5


def test_what_is_no_time_is_told(warehouse, capsys):
    assert "--as-of yesterday: is not a time" in count(
        capsys, warehouse, "throttle_events", "yesterday"
    )


def test_a_commit_without_a_time_counts_as_the_oldest(tmp_path):
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / f"{0:020}.json").write_text('{"protocol": {}}\n')
    (log / f"{1:020}.json").write_text('{"commitInfo": {"inCommitTimestamp": 5, "timestamp": 1}}\n')
    (log / "_last_checkpoint").write_text("{}")
    (log / f"{1:020}.checkpoint.parquet").write_text("")
    for place in (str(tmp_path), f"file://{tmp_path}"):  # the second as an object store is read
        assert [version_at(place, {}, at) for at in (-1, 0, 4, 5)] == [None, 0, 0, 1]
