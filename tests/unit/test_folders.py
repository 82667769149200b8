"""Files and folders that go between listing them and looking at them.

A link to nothing is listed and then not found, as a file is that somebody removes meanwhile.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from app import folders
from app.config.location import Location
from app.config.maintenance import MaintenanceSettings
from app.read.relations import Warehouse, connect
from app.run.maintenance import leftovers
from app.sources.files import line_files
from app.sources.kafka.producer_owners import RequestLogs
from app.sources.poll_plan import Folders
from app.sources.spool import Spool
from app.tables import checkpoints, log_files, run_lock, small_files, spark_files
from app.tables.gathering import Gathered


def gone(path: Path) -> Path:
    """A file that is listed and is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to("nothing")
    return path


@contextmanager
def removed_all_the_time(folder: Path, names: Iterator[str]) -> Iterator[None]:
    """Files come and go in a folder, which goes, too."""
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            folder.mkdir(parents=True, exist_ok=True)
            written = [folder / next(names) for _ in range(5)]
            for file in written:
                file.write_bytes(b"{}\n")
            for file in written:
                file.unlink()
            folder.rmdir()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_a_listing_leaves_out_what_is_gone(tmp_path: Path) -> None:
    gone(tmp_path / "a")
    gone(tmp_path / "below" / "b")
    (tmp_path / "below" / "c").write_text("xyz")
    (tmp_path / "d").write_text("x")
    about = (tmp_path / "d").stat()
    assert folders.files(tmp_path) == [(tmp_path / "d", 1, about.st_mtime_ns)]
    below = [(file.path.name, file.bytes) for file in folders.files_below(tmp_path)]
    assert below == [("d", 1), ("c", 3)]
    assert folders.names(tmp_path) == ["a", "below", "d"]
    assert folders.matching(tmp_path, "*/c") == [tmp_path / "below" / "c"]
    assert folders.look(tmp_path / "a") is None and folders.text(tmp_path / "a") == ""


@pytest.mark.parametrize("missing", ["no", "link", "file/below", "round"])
def test_a_folder_that_is_gone_is_empty(tmp_path: Path, missing: str) -> None:
    gone(tmp_path / "link")
    (tmp_path / "file").touch()
    (tmp_path / "round").symlink_to("round")
    folder = tmp_path / missing
    assert folders.names(folder) == folders.files(folder) == folders.matching(folder, "*") == []
    assert list(folders.files_below(folder)) == []


def test_a_folder_that_may_not_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(0)
    with as_nobody(), pytest.raises(PermissionError):
        folders.names(tmp_path / "closed")


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may read everything."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


def test_what_is_removed_twice_is_removed(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").touch()
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to("kept")
    for name in ("a", "a", "link", "link", "no"):
        folders.remove(tmp_path / name)
    assert folders.names(tmp_path) == ["kept"]


NOBODY = 65534
POLL = "poll-{:015d}-{:015d}.jsonl"


def _polls(root: Path) -> Any:
    return [file.path for file in Folders([str(root)]).files()]


def _request_logs(root: Path) -> Any:
    problems: list[str] = []
    RequestLogs(str(root / "f"), "UTC").read(problems)
    RequestLogs(str(root / "f" / "p*"), "UTC").read(problems)
    return [problem for problem in problems if not problem.endswith(": no file")]


def _leftovers(root: Path) -> Any:
    warehouse = Location(str(root))
    return leftovers.sweep(warehouse, MaintenanceSettings(orphans_ms=3_600_000), dry_run=False)


def _spool(root: Path) -> Any:
    spool = Spool(root / "f", "c")
    spool.hold()
    spool.release()
    return spool.remove_before(0, 1)


def _queries(root: Path) -> Any:
    with connect(Warehouse(str(root)), "weir_queries") as tables:
        return tables.execute("SELECT * FROM weir_queries").fetchall()


LOOKS: list[tuple[str, Callable[[Path], Any], Any]] = [
    ("f/polls", _polls, []),
    ("f", _request_logs, []),
    ("_weir/f", _leftovers, []),
    ("f/polls", _spool, 0),
    ("t/_delta_log", lambda root: log_files.commit_files(str(root / "t")), []),
    ("_weir/f", lambda root: small_files.read_text(Location(str(root)), "_weir/f/0"), None),
    ("_weir/checkpoints/q/offsets", lambda root: checkpoints.found(Location(str(root))), ["q"]),
    ("_weir/locks", lambda root: run_lock.refuse(str(root)), None),
    ("state/0/0", lambda root: spark_files.lost_state(root, -1, 1), None),
    (
        "_weir/checkpoints/q/gathered/t",
        lambda root: Gathered(Location(str(root)), "q").batches("no"),
        [],
    ),
    ("f", lambda root: line_files.is_packed(str(root)), False),
    ("_weir/checkpoints/q/offsets", lambda root: _queries(root), []),
]


@pytest.mark.parametrize(("folder", "look", "nothing"), LOOKS)
def test_who_lists_a_folder_bears_that_files_go(
    tmp_path: Path, folder: str, look: Callable[[Path], Any], nothing: Any
) -> None:
    for name in (POLL.format(1, 2), "0", f".0{'.unfinished'}", f"{1:020d}.json", "0.arrow"):
        gone(tmp_path / folder / name)
    found = look(tmp_path)
    assert found == nothing


@pytest.mark.parametrize("look", [_polls, _request_logs])
def test_feeds_are_read_while_their_files_go(tmp_path: Path, look: Callable[[Path], Any]) -> None:
    names = (POLL.format(number, number) for number in count())
    folder = tmp_path / "f" / "polls"
    with removed_all_the_time(folder, names):
        for _ in range(300):
            look(tmp_path)
