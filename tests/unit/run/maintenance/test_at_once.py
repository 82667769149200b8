"""A writer, readers, two maintenances and a follower at work on the same tables at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.config.settings import Settings
from app.read.relations import Warehouse, connect
from app.show.metrics.table_changes import StartAnew, TableFollower
from app.tables.data_files import data_files
from tests.unit.run.maintenance.tables import found, opened, plain, rows

MakeSettings = Callable[..., Settings]
NAMES = ("limiter_stats", "events")
WRITE = """
import sys
from app.config.settings import load_settings
from tests.unit.run.maintenance.tables import rows, writer
settings = load_settings(overrides={"warehouse": sys.argv[1]})
query, first, count = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
appending = writer(settings, query)
for batch in range(count):
    for name in sys.argv[5].split(","):
        # Every batch twice: the second one must find the first.
        for _ in range(2):
            appending.append(name, rows(name, range(first + batch, first + batch + 1)), batch)
"""
MAINTAIN = """
import sys
import time
from pathlib import Path
from app.config.settings import load_settings
from app.read.relations import Warehouse
from app.run.maintenance import merging
from app.run.maintenance.upkeep import upkeep
merging.SETTLED_MS = 0
settings = load_settings(overrides={"warehouse": sys.argv[1]})
while not all(Path(sys.argv[1], name).is_dir() for name in sys.argv[3].split(",")):
    time.sleep(0.01)  # the writers take longer to start
for _ in range(int(sys.argv[2])):
    done = upkeep(Warehouse.of(settings.location), settings.maintenance)
    assert not [kept.problem for kept in done.tables if kept.problem], done
"""


def started(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        text=True,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=Path(__file__).resolve().parents[4],
    )


@pytest.mark.parametrize(
    ("batches", "rounds"),
    [
        pytest.param(60, 25, id="seconds"),
        pytest.param(3000, 900, id="minutes", marks=pytest.mark.slow),
    ],
)
def test_every_row_is_there_once(batches: int, rounds: int, make_settings: MakeSettings) -> None:
    settings = make_settings()
    place, names = settings.warehouse, ",".join(NAMES)
    Path(place, "_weir").mkdir(parents=True)
    work = [
        started(WRITE, place, "govern", "0", str(batches), names),
        started(WRITE, place, "archive", str(batches), str(batches), names),
        started(MAINTAIN, place, str(rounds), names),
        started(MAINTAIN, place, str(rounds), names),
    ]
    seen = dict.fromkeys(NAMES, 0)
    followed = dict.fromkeys(NAMES, 0)
    warehouse = Warehouse.of(settings.location)
    followers = {name: TableFollower(warehouse) for name in NAMES}
    reads = 0
    while any(process.poll() is None for process in work):
        for name in NAMES:
            if warehouse.open(name) is None:
                continue
            with connect(warehouse, name) as connection:
                (count,) = connection.execute(f"SELECT count(*) FROM {name}").fetchone() or (0,)
            assert seen[name] <= count <= 2 * batches
            seen[name] = count
            followed[name] = follow(followers[name], name, followed[name])
            reads += 1
    for process in work:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    expected = range(2 * batches)
    for name in NAMES:
        assert plain(found(settings, name)) == plain(rows(name, expected))
        assert follow(followers[name], name, followed[name]) == 2 * batches
        assert len(opened(settings, name).delta.file_uris()) < 2 * batches
    assert reads > 0


def follow(follower: TableFollower, name: str, before: int) -> int:
    """The rows of a table, counted as the exporter does: by the files of new commits."""
    for _ in range(20):
        try:
            news = follower.news(name)
        except StartAnew:
            follower.forget()
            before = 0
            continue
        assert news is not None
        rows_of = {file.path: file.rows or 0 for file in data_files(news.followed.delta)}
        follower.done([news])
        return before + sum(rows_of[path] for path in news.files)
    raise AssertionError("the log is never at rest")
