"""Queries that have failed: which start again, when, and what ends the run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from app import sources
from app.archive_names import ARCHIVE
from app.engine import assignment
from app.engine.assignment import jobs_of
from app.errors import UserError
from app.run import integrity
from app.run.failures import (
    ArchiveBlocked,
    BeginsLater,
    Passing,
    QueryFailed,
    RecordsGone,
    TimeTooLarge,
    failure,
)
from app.sources.ports import WrongAnswer
from app.tables import checkpoints, manifest

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.run.progress import Progress
    from app.run.queries import Queries

LONGEST_PAUSE_S = 60.0
ATTEMPTS = 5
"""Consecutive restarts of a query with `--available-now`, or of one whose workers die, and of one
that carries an archive that cannot be written. Any other query restarts without limit.
"""


class Restarts:
    """Restarts the queries of a run that end with a passing error."""

    def __init__(self, settings: Settings, queries: Queries, progress: Progress) -> None:
        self._settings, self._queries, self._progress = settings, queries, progress
        self._again: dict[str, tuple[float, int]] = {}
        """When a query starts again (monotonic s; 0: it has), and the number of its restarts."""

    @property
    def waiting(self) -> list[str]:
        """Queries that will start again."""
        return [name for name, (due, _) in self._again.items() if due]

    @property
    def is_settled(self) -> bool:
        """Whether every query works that has failed."""
        return not self._again

    def look(self) -> bool:
        """Restart what is due; returns whether there is still work."""
        busy = False
        for name, query in list(self._queries.started.items()):
            error = None if query.isActive else query.exception()
            self._queries.end_finished(name)
            busy = busy or query.isActive or error is not None
            if error is not None:
                self._later(name, str(error))
            elif name in self._again and query.lastProgress is not None:
                del self._again[name]  # it has recovered: the next failure is a new one
        return busy

    def _later(self, name: str, text: str) -> None:
        """Schedule the restart of a query after its pause; raises an error that is not passing."""
        reason = self._reason(name, text)
        due, attempt = self._again.get(name, (0.0, 0))
        if not due:
            if attempt >= ATTEMPTS and isinstance(reason, ArchiveBlocked) and name != ARCHIVE:
                self._part_archive(name, str(reason))
                return
            if attempt >= ATTEMPTS and not (self._queries.endless and reason.endless):
                raise UserError(f"query {name}: {reason.what} ({reason})\n{reason.remedy}")
            pause = min(2.0**attempt, LONGEST_PAUSE_S)
            self._again[name] = (time.monotonic() + pause, attempt + 1)
            self._progress.warn(f"{name}: {reason.what} ({reason}); again in {pause:.0f} s")
        elif time.monotonic() >= due:
            self._again[name] = (0.0, attempt)
            try:
                self._queries.start(name)
            except WrongAnswer as error:
                self._later(name, f"ports.WrongAnswer: {error}")

    def _reason(self, name: str, text: str) -> Passing:
        """Why a query has failed, if that may pass; else it is raised."""
        reason = failure(name, text, self._settings)
        # The cause may be damage, or another topic of the same name: then that is the message.
        if isinstance(reason, (QueryFailed, ArchiveBlocked)):
            integrity.check(self._settings, self._queries.groups)
        if isinstance(reason, RecordsGone):
            sources.check_all(self._settings)
            if checkpoints.plan_anew(self._settings.location, name):
                return BeginsLater("the query begins at the new beginning")
        if isinstance(reason, TimeTooLarge):
            place = sources.place_beyond_time(self._settings.feed, self._settings.location, name)
            raise UserError(f"{reason}\nit is {place}") if place else reason
        if not isinstance(reason, Passing):
            raise reason
        return reason

    def _part_archive(self, name: str, reason: str) -> None:
        """Go on without the archive that a query carries and that cannot be written: it becomes a
        query of its own, which begins with the batch that failed.
        """
        location, jobs = self._settings.location, jobs_of(self._queries.groups[name])
        checkpoints.copy_logs(location, name)
        there = assignment.known(location)
        manifest.record(location, {**there, name: jobs, ARCHIVE: (ARCHIVE,)})
        self._queries.groups |= {name: jobs, ARCHIVE: (ARCHIVE,)}
        self._again[name] = (0.0, 0)
        self._progress.warn(
            f"archive: cannot be written ({reason}); it is a query of its own now, which tries again"
            f" until it can and then catches up, and {name} continues without it\nevery record is"
            " read and parsed twice from now on; a new warehouse reads it once"
        )
        self._queries.start(name)
        self._queries.start(ARCHIVE)
