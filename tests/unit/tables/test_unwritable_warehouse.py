"""A warehouse that cannot be written: what reads answers, what writes says so in a line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from app.cli import main
from app.config.settings import load_settings
from app.errors import UserError
from app.tables import writable
from tests.support.producer_quota import archive, trace
from tests.support.small_disk import fill, small_disk
from tests.support.throttle_rows import TOPIC, event, window, write
from tests.support.unwritable import unwritable
from tests.unit.whatif.bakeoff.traces import cache_records

READING = (
    ["tables"],
    ["query", "SELECT count(*) FROM throttle_events"],
    ["query", "blame"],
    ["explain", "topic", TOPIC],
    ["metrics", "--once"],
    ["alerts", "rules"],
    ["alerts", "check", "--at", "2023-11-14T22:15:00Z"],
)
WRITING = {
    "quality": (["quality", "--table", "events"], "10 of 10 expectations hold"),
    "bakeoff": (["bakeoff", "--sizes", "8kB"], "8.0 kB"),
    "alerts": (["alerts", "check"], "rules checked"),
}


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A warehouse with throttles, producer ids and cache entries, that nobody can write."""
    folder = tmp_path_factory.mktemp("unwritable") / "warehouse"
    settings = load_settings(None, {"warehouse": str(folder)})
    archive(settings, [*trace(), *cache_records()])
    write(str(folder), "throttle_events", [event(100, "mark"), event(300, "unmark")])
    write(str(folder), "topic_throttle_stats", [window(0), window(1)])
    before = sorted(folder.rglob("*"))
    with unwritable(folder):
        yield str(folder)
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_what_only_reads_answers(
    words: list[str], warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--warehouse", warehouse] if words[1:] != ["rules"] else []
    assert main([*words, *options]) in (0, 1), capsys.readouterr().err
    out, err = capsys.readouterr()
    assert out and err == ""


def test_the_report_is_made_elsewhere(
    warehouse: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "r.html"
    assert main(["report", "--warehouse", warehouse, "--out", str(page)]) == 0
    assert page.stat().st_size > 1000


@pytest.mark.parametrize("kind", WRITING)
def test_what_keeps_its_answer_prints_it_and_says_that_it_is_not_kept(
    kind: str, warehouse: str, capfd: pytest.CaptureFixture[str]
) -> None:
    words, answer = WRITING[kind]
    assert main([*words, "--warehouse", warehouse]) == 2
    out, err = capfd.readouterr()  # also what a library writes past Python
    assert answer in out
    (line,) = err.splitlines()
    assert line.startswith(f"weir: warehouse: {warehouse} cannot be written (")
    assert "not kept" in line or "neither recorded nor delivered" in line


@pytest.mark.parametrize("below", ["", "offsets", "commits", "state", "sources", "gathered"])
def test_a_full_disk_of_a_query_is_met_before_a_start(below: str, tmp_path: Path) -> None:
    folder = tmp_path / "w" / "_weir" / "checkpoints" / "govern" / below
    folder.mkdir(parents=True)
    location = load_settings(None, {"warehouse": str(tmp_path / "w")}).location
    with small_disk(folder, "4m"):
        writable.require(location)
        ballast = fill(folder)
        with pytest.raises(UserError, match=f"{folder} cannot be written .No space left"):
            writable.require(location)
        ballast.unlink()


def test_an_audit_that_fails_says_so_first(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "warehouse"
    write(str(folder), "topic_throttle_stats", [window(0), window(0)])  # the same key twice
    with unwritable(folder):
        assert main(["quality", "--warehouse", str(folder)]) == 1
    out, err = capfd.readouterr()
    assert "topic_throttle_stats" in out
    assert err.startswith(f"weir: warehouse: {folder} cannot be written (")


@pytest.mark.parametrize("place", ["", "_weir", "events/_delta_log", "new"])
def test_a_run_is_refused_before_spark_starts(
    place: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, events = tmp_path / "warehouse", tmp_path / "in"
    locked = folder / place if place != "new" else folder
    for path in (locked, events):
        path.mkdir(parents=True)
    config = tmp_path / "weir.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "warehouse": str(folder / "new" / "deep" if place == "new" else folder),
                "source": {"format": "files", "path": str(events)},
            }
        )
    )
    monkeypatch.setattr("app.run.service.build_session", None)  # it would start a JVM
    with unwritable(locked):
        assert main(["run", "--config", str(config)]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"weir: warehouse: {locked} cannot be written (")


@pytest.mark.parametrize(
    "words",
    [
        ["report", "--warehouse", "{warehouse}", "--out", "{locked}/r.html"],
        ["demo", "--out", "{locked}/demo"],
    ],
    ids=lambda words: words[0],
)
def test_a_file_that_cannot_be_written_is_for_the_user_to_fix(
    words: list[str], warehouse: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    locked = tmp_path / "locked"
    locked.mkdir()
    with unwritable(locked):
        given = [word.format(warehouse=warehouse, locked=locked) for word in words]
        assert main(given) == 2
    said = capfd.readouterr().err
    assert f"{locked}" in said.partition("weir: ")[2].splitlines()[0]
    assert "Traceback" not in said and "fault" not in said
