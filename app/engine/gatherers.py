"""Commits the gathered rows of a run when they are due, and at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from app.archive_names import ARCHIVE
from app.engine.archive_query import writer_of
from app.errors import reason
from app.tables import gathering
from app.tables.archive_files import ArchiveWriter
from app.tables.commit import Writer
from app.tables.gathering import GatheringWriter
from app.tables.writable import obstacle

if TYPE_CHECKING:
    from app.config.settings import Settings


class Gatherers:
    """The writers of a run's queries."""

    def __init__(self, settings: Settings, gathers: bool, warn: Callable[[str], None]) -> None:
        """Without `gathers` every batch commits its rows, as in a run with `--available-now`."""
        self._settings, self._warn = settings, warn
        self._gathers = gathers and gathering.possible(settings.location)
        self._writers: dict[str, GatheringWriter] = {}
        self._archive: ArchiveWriter | None = None

    def writer(self, query: str) -> Writer:
        """The writer of a query; a restarted query gets the same one."""
        if not self._gathers:
            return Writer(self._settings.location, query, self._settings.maintenance.history_ms)
        if query not in self._writers:
            self._writers[query] = GatheringWriter(
                self._settings.location,
                query,
                self._settings.maintenance.history_ms,
                self._settings.commit_interval_ms,
            )
        return self._writers[query]

    def archive(self) -> ArchiveWriter:
        """The writer of the archive, the same for every query that carries it in turn."""
        if self._archive is None:
            self._archive = writer_of(self._settings, gathers=self._gathers)
            self._writers[ARCHIVE] = self._archive
        return self._archive

    def commit_due(self) -> None:
        """Commit rows that have waited for their interval. A failed commit is repeated an interval
        later; Damaged where a table is gone.
        """
        for query, writer in self._writers.items():
            self._guarded(query, writer, writer.commit_due)

    def commit_all(self) -> None:
        """Commit the remaining rows at the end of a run."""
        for query, writer in self._writers.items():
            self._guarded(query, writer, writer.commit_all)

    def _guarded(self, query: str, writer: GatheringWriter, commit: Callable[[], None]) -> None:
        try:
            commit()
        except Exception as error:  # noqa: BLE001 - the rows are kept for the next commit
            writer.require_tables()
            self._warn(
                f"{query}: gathered rows wait for another commit, or the next start"
                f" ({type(error).__name__}: {reason(error)})"
                f" {obstacle(self._settings.location, '*/', '*/_delta_log/') or ''}".rstrip()
            )
