"""A warehouse that continues another one: it reads its archive first, then the source from where the
archive ends.

`<warehouse>/_weir/continues.json` has what was found at the first start, before the first batch: the
version of the archive and its end in the source. The other warehouse may go on or be removed later;
only the files of that version must stay until they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from app.archive_names import ARCHIVE
from app.config.location import Location
from app.errors import UserError
from app.plain_text import lines_of
from app.tables import checkpoints, gathering, manifest, run_lock
from app.tables.archive_files import ArchiveWriter
from app.tables.json_documents import Document
from app.tables.log_files import opened
from app.tables.small_files import Damaged, local_path, path_in, read_text, write_text
from app.tables.spark_files import SourceLog, entry_of

if TYPE_CHECKING:
    from deltalake import DeltaTable

NAME = "_weir/continues.json"
OPTION = "--from-archive"


@dataclass(frozen=True)
class Predecessor:
    """The warehouse that is continued."""

    uri: str
    version: int
    """Version of its table `events`."""
    ends: list[str]
    """Where the archive ends in each source, as Spark records it."""
    first_offset: dict[str, Any] | None = None
    """Where it begins, for sources whose start Spark does not record."""
    is_read: bool = False
    """Whether the archive is read, and the source goes on."""


_DOCUMENT: Document[Predecessor] = Document(Predecessor, indent=1)


def predecessor(warehouse: Location) -> Predecessor | None:
    """The warehouse that this one continues; None if it begins by itself."""
    return _DOCUMENT.load(warehouse, NAME)


def unread(warehouse: Location) -> Predecessor | None:
    """The warehouse that this one continues, until its archive is read."""
    kept = predecessor(warehouse)
    return None if kept is None or kept.is_read else kept


def location(warehouse: Location, uri: str) -> Location:
    """Another warehouse, in the same store or on this machine."""
    local = local_path(uri)
    return Location(uri if local is None else str(local.absolute()), warehouse.storage_options)


def archive_of(warehouse: Location, kept: Predecessor) -> DeltaTable:
    """The version of the archive that a warehouse continues."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    path = path_in(location(warehouse, kept.uri), "events")
    try:
        return DeltaTable(path, version=kept.version, storage_options=warehouse.storage())
    except DeltaError as error:
        raise UserError(
            f"{OPTION}: {path} has no version {kept.version} any more, which {warehouse.uri} begins"
            " with\nput it back from a copy, or begin another warehouse"
        ) from error


def check(warehouse: Location, uri: str, streamed: str | None, polled: bool) -> None:
    """UserError for a warehouse that cannot continue another one with a source of this format and
    polls, before anything is written.
    """
    kept, old = predecessor(warehouse), location(warehouse, uri)
    if kept is not None and kept.uri == old.uri:
        return
    if kept is not None or checkpoints.found(warehouse):
        what = "has records of its own" if kept is None else f"continues {kept.uri}"
        raise UserError(
            f"{OPTION}: {warehouse.uri} {what}; an archive fills a new warehouse\n"
            f"leave {OPTION} out to go on, or name another warehouse"
        )
    run_lock.refuse(old.uri)
    checkpoints.fitted(_End(old).lines, streamed, polled)


def begin(warehouse: Location, uri: str, queries: Iterable[str], history_ms: int) -> Predecessor:
    """What a new warehouse continues: the archive as it is now, with the rows that wait for a commit.
    The queries get Spark's list of the files that the source has given so far.
    """
    old = location(warehouse, uri)
    with run_lock.only_run(old, [ARCHIVE]):
        gathering.commit_left(old, ARCHIVE, history_ms, ArchiveWriter)
        end = _End(old)
        log = f"{checkpoints.FOLDER}/{{}}/sources/0/{{}}"
        for name in end.listed():
            text = read_text(old, log.format(end.reader, name))
            if text is None:
                raise Damaged(path_in(old, log.format(end.reader, name)), "is gone")
            for query in queries:
                write_text(warehouse, log.format(query, name), text)
        manifest.keep_topics(warehouse, manifest.of_any_layout(old).topics or {})
        first = checkpoints.require_identity(old, end.reader).first_offset
        kept = Predecessor(old.uri, end.table.version(), end.lines, first)
        _DOCUMENT.keep(warehouse, NAME, kept)
    return kept


class _End:
    """Where the archive of a warehouse ends in the source; UserError where nothing says so."""

    def __init__(self, old: Location) -> None:
        table = opened(old, "events")
        if table is None or not table.file_uris():
            raise UserError(
                f"{OPTION}: {old.uri} has no archive, a table events with records\n"
                f"leave {OPTION} out: the source is then read from its beginning"
            )
        if (before := unread(old)) is not None:
            raise UserError(
                f"{OPTION}: {old.uri} has not read all of {before.uri}, which it continues\n"
                f"finish that run first, or name {before.uri}"
            )
        self.table = table
        self.reader = checkpoints.carrier(old, ARCHIVE)
        self._old, batch = old, checkpoints.last_ended(old, ARCHIVE)
        identity = checkpoints.identity(old, ARCHIVE)
        if identity is not None:  # the table may have a batch that has not ended
            has = table.transaction_version(identity.applications[-1])
            batch = batch if has is None else max(batch, has)
        text = read_text(old, f"{checkpoints.FOLDER}/{self.reader}/offsets/{batch}")
        self.lines = lines_of(text or "")[2:]
        """As Spark records it, for each source."""
        if not self.lines:
            raise UserError(
                f"{OPTION}: nothing in {checkpoints.logs_path(old, ARCHIVE)} says where the archive of"
                f" {old.uri} ends in the source\nput the checkpoint back from a copy; without one"
                " read the source from its beginning into a new warehouse"
            )

    def listed(self) -> list[str]:
        """The names of Spark's lists of the files that it has read, of a source of files."""
        last = entry_of(checkpoints.offset_of(self.lines[0]))
        return [] if last is None else SourceLog(self._old, self.reader).logs(last)


def is_past(warehouse: Location, query: str) -> bool:
    """Whether a query has read the archive and goes on with the source, as a kill may leave it."""
    kept = predecessor(warehouse)
    return kept is not None and checkpoints.ends(warehouse, query) == kept.ends


def finish(warehouse: Location, queries: Sequence[str]) -> None:
    """Let queries that have read the archive go on with the source, from where the archive ends."""
    kept = predecessor(warehouse)
    assert kept is not None
    for query in queries:
        checkpoints.identify(warehouse, query, first_offset=kept.first_offset)
        checkpoints.put_ends(warehouse, query, lambda _: kept.ends, anew=True)
    _DOCUMENT.keep(warehouse, NAME, replace(kept, is_read=True))
