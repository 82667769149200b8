"""The warehouse: a checkpoint or a table deleted, files that are half written."""

from __future__ import annotations

import shlex
import shutil
from functools import partial
from pathlib import Path

from app.errors import UserError
from app.sources.files.open_file import absolute
from app.tables import checkpoints
from app.tables.spark_files import SourceLog, entry_of
from tests.crash.disaster import Disaster
from tests.crash.service import Failed
from tests.crash.site import Site

REMOVE = ": rm "
REMEDIES = 4
"""Most that are needed one after the other: two queries, each with a log and a table."""


def checkpoint_deleted(site: Site) -> None:
    """During a run: it stops, and no other begins on the tables that are left."""
    query = _one_of_two(site)
    with site.running() as run:
        run.wait_for_batches(site.chance.randint(1, 3))
        run.wait(lambda: run.batches(query, "commits") > 0)
        shutil.rmtree(_checkpoint(site, query), ignore_errors=True)
        said = run.refused()
    _names(said, "checkpoint")
    _follow(site)


def table_deleted(site: Site) -> None:
    """During a run: it stops, and the table is not begun anew."""
    name = site.chance.choice(("events", "throttle_events", "topic_throttle_stats"))
    with site.running() as run:
        run.wait_for_batches(2)
        shutil.rmtree(site.warehouse / name)
        said = run.refused()
    _names(said, name)
    _follow(site)


def log_entry(half: bool, site: Site) -> None:
    """The newest entry of a table's log is empty or half there, as after a loss of power."""
    _run_and_kill(site)
    name = site.chance.choice(("events", "throttle_events", "topic_throttle_stats"))
    _cut(sorted((site.warehouse / name / "_delta_log").glob("*.json"))[-1], half)
    _follow(site)


def spark_log(log: str, half: bool, site: Site) -> None:
    """The newest file of Spark's own log is empty or half there."""
    query = _one_of_two(site)
    _run_and_kill(site, query)
    folder = _checkpoint(site, query) / log
    last = max(int(file.name) for file in folder.iterdir() if file.name.isdigit())
    _cut(folder / str(last), half)
    (folder / f".{last}.crc").unlink(missing_ok=True)
    _follow(site)


def weir_file(half: bool, site: Site) -> None:
    """A file that belongs to the warehouse or a checkpoint is gone, or half there."""
    _run_and_kill(site)
    damage_a_file(half, site)


def damage_a_file(half: bool, site: Site) -> None:
    """The same between two runs."""
    folder = site.warehouse / "_weir"
    files = [
        folder / "manifest.json",
        *folder.glob("checkpoints/*/weir-*"),
        *folder.glob("checkpoints/*/gathered/*/*.arrow"),
    ]
    file = site.chance.choice(sorted(files))
    if half:
        _cut(file, half)
    else:
        file.unlink()
    _follow(site)


def source_file(site: Site) -> None:
    """A file that a batch needs that has not ended is removed, and put back when it is missed."""
    _run_and_kill(site)
    miss_a_file(site)
    site.finish()


def miss_a_file(site: Site) -> None:
    """Between two runs: of each query that has a batch to repeat, one of its files is away for a
    start."""
    settings = site.settings
    for query in ("govern", "archive"):
        log = SourceLog(settings.location, query)
        ended = checkpoints.last_ended(settings.location, query)
        done = entry_of(checkpoints.offsets(settings.location, query, ended)) if ended >= 0 else -1
        assert done is not None
        files = [absolute(file.path) for file in log.files(log.last, done)]
        if files:
            file = Path(site.chance.choice(sorted(files)))
            away = file.rename(site.folder / file.name)
            try:
                said = site.refused()
            finally:
                away.rename(file)
            _names(said, str(file))


def older_checkpoint(site: Site) -> None:
    """A checkpoint from a copy that is older than the tables."""
    query = _one_of_two(site)
    kept = site.folder / "copy"
    with site.running() as run:
        run.wait(lambda: run.batches("govern", "commits") > 0 < run.batches(query, "commits"))
        run.stop()
    shutil.copytree(_checkpoint(site, query), kept)
    with site.running() as run:
        run.wait_for_batches(2, query)
        run.stop()
    shutil.rmtree(_checkpoint(site, query))
    shutil.copytree(kept, _checkpoint(site, query))
    said = site.refused()
    _names(said, "older")
    _follow(site)


def _one_of_two(site: Site) -> str:
    """The query that carries the archive, or that of an archive which has one of its own."""
    query = site.chance.choice(("govern", "archive"))
    if query == "archive":
        site.part_archive()
    return query


def _run_and_kill(site: Site, query: str = "govern") -> None:
    with site.running() as run:
        run.wait_for_batches(site.chance.randint(2, 3))
        run.wait(lambda: run.batches(query, "commits") > 0)
        run.kill()


def _checkpoint(site: Site, query: str) -> Path:
    return site.warehouse / "_weir" / "checkpoints" / query


def _cut(file: Path, half: bool) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if half else b"")


def _names(said: list[str], word: str) -> None:
    if word not in " ".join(said) or len(said) < 2:
        raise Failed(f"stopped by {said}")


def _follow(site: Site) -> None:
    """Start again, and follow the remedies until a start is not refused."""
    for _ in range(REMEDIES):
        try:
            site.finish()
            return
        except UserError as refused:  # exit code 2
            said = str(refused).splitlines()
        _remedy(site, said)
    raise Failed(f"the remedies did not help: {said}")


def _remedy(site: Site, said: list[str]) -> None:
    remedy = said[-1]
    if REMOVE in remedy:
        for name in shlex.split(remedy.partition(REMOVE)[2]):
            file = Path(name)
            shutil.rmtree(file) if file.is_dir() else file.unlink()
    elif "another warehouse" in remedy:
        site.take_another_warehouse()
    else:
        raise Failed(f"no remedy in {said}")


DISASTERS = [
    Disaster("checkpoint-deleted", checkpoint_deleted, "stops"),
    Disaster("table-deleted", table_deleted, "stops"),
    Disaster("log-entry-empty", partial(log_entry, False), "stops"),
    Disaster("log-entry-half", partial(log_entry, True), "stops"),
    *(
        Disaster(f"{log}-{'half' if half else 'empty'}", partial(spark_log, log, half), "stops")
        for log in ("offsets", "commits")
        for half in (False, True)
    ),
    Disaster("checkpoint-older", older_checkpoint, "stops"),
    Disaster("weir-file-gone", partial(weir_file, False), "stops"),
    Disaster("weir-file-half", partial(weir_file, True), "stops"),
    Disaster("source-file-removed", source_file, "stops"),
]
