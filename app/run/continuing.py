"""A run that continues another warehouse: its archive comes first, then the source."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from app.read.relations import ANY_ORDER, Warehouse, connect
from app.show.audit import record_suites
from app.sources.poll_plan import read_of
from app.sources.polled import SPOOL
from app.tables import checkpoints, durable, succession
from app.tables.data_files import data_files
from app.tables.retained import whole_from_ms
from app.tables.small_files import local_path
from app.terminal.moments import instant_of

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.tables.succession import Predecessor


def begin(settings: Settings, uri: str, queries: Iterable[str]) -> list[str]:
    """Record what the warehouse continues; returns what a user may not expect of it, one sentence
    each.
    """
    if succession.predecessor(settings.location) is not None:
        return []
    kept = succession.begin(settings.location, uri, queries, settings.maintenance.history_ms)
    return list(_notes(settings, kept))


def _take_polls(old: Path | None, new: Path | None, end: str) -> None:
    """Copy the folders of a local warehouse's feeds, without the files that the archive has."""
    if old is None or new is None or (new / SPOOL).exists() or not (old / SPOOL).exists():
        return
    unfinished, read = durable.unfinished(new / SPOOL), checkpoints.offset_of(end)
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.copytree(
        old / SPOOL,
        unfinished,
        ignore=lambda folder, names: read_of(Path(folder).parent.name, names, read),
    )
    unfinished.replace(new / SPOOL)


def _notes(settings: Settings, kept: Predecessor) -> Iterator[str]:
    old = succession.location(settings.location, kept.uri)
    table = succession.archive_of(settings.location, kept)
    rows = sum(file.rows or 0 for file in data_files(table))
    where = settings.streamed.title if settings.streamed else "the polls"
    yield f"archive of {kept.uri}: {rows:,} records come first, then {where} from where it ends"
    since_ms = whole_from_ms(old, "events")
    if since_ms:
        yield (
            f"archive of {kept.uri}: retention has removed its records before"
            f" {instant_of(since_ms)}; jobs begin there as with a source that begins there"
        )
    sql = record_suites.missing("events", since_ms)
    with connect(Warehouse.of(old), sql, config=ANY_ORDER) as connection:
        found = connection.execute(
            f"SELECT sum(counted - archived), count(*), min(minute_ms), max(minute_ms) FROM ({sql})"
        ).fetchone()
    if found and found[1]:
        lost, minutes, first_ms, last_ms = map(int, found)
        yield (
            f"archive of {kept.uri}: {lost:,} records of {minutes} minutes of brokers between"
            f" {instant_of(first_ms)} and {instant_of(last_ms)} are missing, and will be here"
            " (quality names them); where the source still has them, begin a warehouse without"
            f" {succession.OPTION}"
        )


def filling(settings: Settings) -> Settings | None:
    """The settings with the archive as source, while it is not read: nobody is notified of what is
    past. Polls that it has not wait in the warehouse. None once it is read, and where none is.
    """
    kept = succession.unread(settings.location)
    if kept is None:
        return None
    _take_polls(local_path(kept.uri), local_path(settings.warehouse), kept.ends[-1])
    feed = settings.feeds[0].model_copy(
        update={"format": "archive", "path": kept.uri, "options": {}}
    )
    alerts = settings.alerts.model_copy(update={"interval_ms": None})
    return settings.model_copy(
        update={
            "source": (feed,),
            "queries": settings.queries,
            "alerts": alerts,
            "throttle_feed": None,
        }
    )
