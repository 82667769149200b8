"""The command: what it prints, what it leaves alone, and how it ends."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from app.cli import main
from app.config.settings import Settings
from app.run.maintenance import merging
from app.run.side_processes import one_round, repeating
from app.tables.run_lock import only_maintenance, only_run
from tests.unit.run.maintenance.tables import fill, found, opened, plain

MakeSettings = Callable[..., Settings]
NAME = "limiter_stats"


@pytest.fixture
def settings(make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(merging, "SETTLED_MS", 0)
    made = make_settings()
    fill(made, NAME, range(9))
    fill(made, "quarantine", range(2))
    return made


def ran(settings: Settings, *options: str) -> int:
    return main(["maintain", "--warehouse", settings.warehouse, *options])


def tree(settings: Settings) -> set[str]:
    return {str(path) for path in Path(settings.warehouse).rglob("*")}


def test_the_tables_before_and_after(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran(settings, "--json") == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert answer["leftovers"] == [] and answer["dry_run"] is False
    sizes = ("bytes", "bytes_after", "log_bytes", "log_bytes_after")
    assert [{k: v for k, v in table.items() if k not in sizes} for table in answer["tables"]] == [
        {
            "table": name,
            "files": files,
            "files_after": after,
            "rows_removed": 0,
            "files_removed": 0,
            "bytes_removed": 0,
            "problem": None,
        }
        for name, files, after in ((NAME, 9, 1), ("quarantine", 2, 2))
    ]
    assert [table["bytes_after"] < table["bytes"] for table in answer["tables"]] == [True, False]
    assert ran(settings) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "table",
        "files",
        "files_after",
        "bytes",
        "bytes_after",
        "rows_removed",
        "files_removed",
        "bytes_removed",
        "log_bytes",
        "log_bytes_after",
    ]
    assert lines[-1].startswith("2 tables: 3 files became 3; 0 files (0 bytes) of no version")


def test_a_dry_run_changes_nothing(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree(settings)
    assert ran(settings, "--dry-run") == 0
    out = capsys.readouterr().out.splitlines()
    assert out[2].split()[:3] == [NAME, "9", "1"]
    assert out[-1] == (
        "2 tables: 11 files would become 3; 0 files (0 bytes) of no version in the "
        "history would be removed"
    )
    assert tree(settings) == before


def test_a_second_one_is_refused(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    with only_maintenance(settings.location):
        assert ran(settings) == 2
        assert ran(settings, "--dry-run") == 0
        assert one_round("maintenance", settings.model_dump_json(), Event()) == ""
    assert capsys.readouterr().err.splitlines() == [
        f"weir: maintain: another process maintains {settings.warehouse}",
        "it does the same work: wait for its end",
    ]


def test_a_run_is_no_obstacle_and_maintenance_none_for_a_run(settings: Settings) -> None:
    with only_run(settings.location, ["govern", "archive"]):
        assert ran(settings) == 0
    with only_maintenance(settings.location), only_run(settings.location, ["govern"]):
        pass
    assert len(opened(settings, NAME).delta.file_uris()) == 1


def test_a_damaged_table_is_left_and_the_others_are_maintained(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = Path(settings.warehouse, "quarantine", "_delta_log", f"{1:020}.json")
    damaged.write_text("")
    before = {p for p in tree(settings) if "quarantine" in p}
    assert ran(settings, "--json") == 1
    tables = {t["table"]: t for t in json.loads(capsys.readouterr().out)["tables"]}
    assert tables["quarantine"]["problem"].startswith("warehouse: the table ")
    assert (tables[NAME]["files_after"], tables[NAME]["problem"]) == (1, None)
    assert {p for p in tree(settings) if "quarantine" in p} == before


def test_what_an_interrupted_command_left_behind_is_removed(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    weir = Path(settings.warehouse, "_weir")
    copying, kept = weir / "checkpoints" / "chunks.copying", weir / "checkpoints" / "chunks"
    unfinished = weir / "progress" / ".govern.json.unfinished"
    young = weir / ".manifest.json.unfinished"
    for path in (copying / "offsets", kept / "offsets", unfinished.parent):
        path.mkdir(parents=True)
    for path in (unfinished, young):
        path.write_text("x")
    then = time.time() - 25 * 3600
    for path in (copying, kept, unfinished):
        os.utime(path, (then, then))
    with only_run(settings.location, ["govern"]):
        assert ran(settings) == 0
    assert copying.exists() and unfinished.exists()
    capsys.readouterr()
    assert ran(settings) == 0
    assert capsys.readouterr().out.splitlines()[-3:-1] == [
        f"removed {copying}",
        f"removed {unfinished}",
    ]
    assert (kept.exists(), young.exists(), copying.exists(), unfinished.exists()) == (
        True,
        True,
        False,
        False,
    )


@pytest.mark.parametrize("command", ["maintain", "query", "run", "quality", "forecast"])
def test_a_warehouse_where_no_tables_can_be_is_refused(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert main([command, "--warehouse", "hdfs://nowhere/weir"]) == 2
    said = capsys.readouterr().err
    assert "warehouse: no tables can be in hdfs://nowhere/weir" in said
    assert "allowed: a folder, s3://, s3a://" in said


def test_a_run_maintains_its_warehouse(make_settings: MakeSettings) -> None:
    """Nothing is due in so young files; properties of an earlier version are."""
    settings = make_settings(maintenance={"interval_ms": 1})
    fill(settings, NAME, range(2))
    opened(settings, NAME).delta.alter.set_table_properties({"delta.checkpointInterval": "100"})
    before = plain(found(settings, NAME))
    reported: list[str] = []
    with repeating("maintenance", settings, reported.append):
        deadline = time.monotonic() + 120
        while opened(settings, NAME).delta.version() == 3 and time.monotonic() < deadline:
            Event().wait(0.1)
    assert opened(settings, NAME).delta.metadata().configuration["delta.checkpointInterval"] == "50"
    assert plain(found(settings, NAME)) == before
    assert reported == []


def test_problems_beside_a_run_are_reported(settings: Settings) -> None:
    damaged = Path(settings.warehouse, "quarantine", "_delta_log", f"{1:020}.json")
    damaged.write_text("")
    report = one_round("maintenance", settings.model_dump_json(), Event())
    assert report.startswith("quarantine: warehouse: the table ")
