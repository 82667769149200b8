"""Commands on a disk that becomes full at one of their writes, whichever it is: how much room is left
decides. They say so in a line, leave nothing that is taken for whole, and do it all with room again.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.cli import main
from app.config.settings import load_settings
from benchmarks.generator import generate_command
from tests.support.effort import SLOW
from tests.support.producer_quota import archive, trace
from tests.support.small_disk import fill, small_disk
from tests.support.throttle_rows import TOPIC, event, window, write
from tests.support.traces import rows_of
from tests.unit.whatif.bakeoff.traces import cache_records

Rows = dict[str, list[tuple[object, ...]]]
KIB = 1024
SIZE = "48m"
ROOM = [0, 3, 17, 40, 90, 300, 700, 1100]
"""KiB that are left."""
LEFT = [*ROOM, *range(4, 64, 4), *range(64, 1100, 64)] if SLOW else ROOM[:4:3]
SAID = "No space left on device"
COMMANDS: dict[str, tuple[list[str], int, tuple[str, ...]]] = {
    "alerts": (["alerts", "check"], 0, ("alerts",)),
    "audit": (["quality", "--table", "events"], 0, ()),
    "forecast": (["forecast"], 0, ()),
    "maintain": (["maintain"], 0, ("events", "topic_throttle_stats")),
    "forget": (["forget", "--principal", "User:busy"], 0, ()),
    "advice": (["policy", "suggest", "producer-ids", "--out", "{disk}/p.yaml"], 0, ()),
    "bakeoff": (["bakeoff", "--sizes", "8kB"], 0, ()),
    "report": (["report", "--out", "{disk}/r.html"], 0, ()),
    "replay": (
        ["replay", "--out", "{disk}/replayed", "--jobs", "producer_ids,entry_cache"],
        0,
        ("replayed/producer_id_stats", "replayed/cache_stats", "replayed/quarantine"),
    ),
    "generate": (["generate", "--events", "17000", "--out", "{disk}/generated"], 0, ()),
}
"""Words of a command, its exit code with room, and tables whose rows are then those of a disk that
never was full."""
OWN = {"generate"}
"""A tool beside the benchmarks, without a warehouse."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with throttles, producer ids and cache entries."""
    folder = tmp_path_factory.mktemp("made") / "warehouse"
    archive(load_settings(None, {"warehouse": str(folder)}), [*trace(), *cache_records()])
    write(str(folder), "throttle_events", [event(100, "mark"), event(300, "unmark")])
    for number in range(12):
        write(str(folder), "topic_throttle_stats", [window(number)])
    return folder


@pytest.fixture
def disk(made: Path, tmp_path: Path) -> Iterator[Path]:
    """A disk with a copy of the warehouse."""
    folder = tmp_path / "disk"
    shutil.copytree(made, folder / "warehouse")
    with small_disk(folder, SIZE):
        yield folder


def words(kind: str, folder: Path) -> list[str]:
    given = [word.format(disk=folder) for word in COMMANDS[kind][0]]
    return given if kind in OWN else [*given, "--warehouse", str(folder / "warehouse")]


def run(kind: str, folder: Path) -> int:
    """The exit code of a kind of command."""
    given = words(kind, folder)
    return generate_command.main(given[1:]) if kind in OWN else main(given)


def rows(kind: str, folder: Path) -> Rows:
    return {
        name: rows_of(str(folder / ("" if "/" in name else "warehouse")), name.split("/")[-1])
        if "/" not in name
        else rows_of(str(folder / name.split("/")[0]), name.split("/")[1])
        for name in COMMANDS[kind][2]
    }


@pytest.fixture(scope="module")
def calm(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Rows]:
    """The rows of a kind of command on a disk that never was full."""

    @functools.cache
    def done(kind: str) -> Rows:
        folder = tmp_path_factory.mktemp("calm")
        shutil.copytree(made, folder / "warehouse")
        assert run(kind, folder) == COMMANDS[kind][1]
        return rows(kind, folder)

    return done


@pytest.mark.parametrize("kind", COMMANDS)
@pytest.mark.parametrize("left", sorted({*LEFT}))
def test_a_command_says_that_the_disk_is_full_and_does_it_all_with_room_again(
    kind: str,
    left: int,
    disk: Path,
    calm: Callable[[str], Rows],
    capfd: pytest.CaptureFixture[str],
) -> None:
    ballast = fill(disk, left * KIB)
    code = run(kind, disk)
    out, err = capfd.readouterr()
    assert code in (COMMANDS[kind][1], 1, 2), err
    assert "Traceback" not in err and "internal error" not in err and "panicked" not in err, err
    if code != COMMANDS[kind][1]:
        assert SAID in out + err
        if code == 2:
            last = err[err.index("weir: ") :].splitlines()
            assert SAID in last[0] and str(disk) in last[0] and len(last) <= 2
    ballast.unlink()
    if kind in OWN and code:
        shutil.rmtree(disk / "generated", ignore_errors=True)
    assert run(kind, disk) == COMMANDS[kind][1], capfd.readouterr().err
    hidden = [path for path in disk.rglob(".*") if path.name.endswith((".unfinished", ".part"))]
    assert hidden == []
    assert rows(kind, disk) == calm(kind)


PRINTING = [
    ["tables"],
    ["tables", "throttle_events"],
    ["query", "SELECT * FROM events"],
    ["query", "SELECT * FROM events", "--json"],
    ["query", "SELECT * FROM events", "--csv"],
    ["query", "blame"],
    ["explain", "topic", TOPIC],
    ["report", "--json"],
    ["metrics", "--once"],
    ["alerts", "rules"],
    ["quality", "--table", "events"],
    ["validate", "--show", "--config", "configs/weir.yaml"],
    ["policy", "show", TOPIC],
    ["--help"],
]


@pytest.mark.parametrize("given", PRINTING if SLOW else PRINTING[2:8:2], ids=" ".join)
def test_an_output_that_is_full_is_named(given: list[str], made: Path) -> None:
    of = [] if given[0] in ("--help", "alerts") else ["--warehouse", str(made)]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "app.main", *given, *of],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (2, f"weir: standard output: {SAID}\n")


@pytest.mark.parametrize("scenario", ["demo", "real-pulsar"])
def test_a_file_of_several_is_named(
    scenario: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for left in (0, 8):
        with small_disk(tmp_path, "1m"):
            fill(tmp_path, left * KIB)
            assert main(["demo", "--scenario", scenario, "--out", str(tmp_path / "demo")]) == 2
        said = capfd.readouterr().err
        assert str(tmp_path / "demo") in said and SAID in said, said


def test_an_error_that_nobody_can_read_has_its_exit_code() -> None:
    with Path("/dev/full").open("w") as full:
        line = [sys.executable, "-m", "app.main", "tables", "--config", "/nowhere"]
        assert subprocess.run(line, stderr=full, timeout=60, check=False).returncode == 2


def test_a_device_takes_a_report_and_stays_what_it_is(made: Path, tmp_path: Path) -> None:
    device, link, page = tmp_path / "device", tmp_path / "link", tmp_path / "page"
    subprocess.run(["mknod", str(device), "c", "1", "7"], check=True)  # as /dev/full
    link.symlink_to(page)
    line = ["report", "--warehouse", str(made), "--out"]
    with contextlib.suppress(SystemExit):
        assert main([*line, str(device)]) == 2
    assert device.is_char_device()
    assert main([*line, str(link)]) == 0
    assert link.is_symlink() and page.stat().st_size > 1000
