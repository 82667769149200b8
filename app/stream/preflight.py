"""What a run refuses before Spark starts: everything that can be known without a JVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from app.errors import UserError
from app.stream import assignment, integrity, run_lock
from app.warehouse import checkpoints, manifest, writable

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.stream.assignment import Plan

ARCHIVE = (checkpoints.ARCHIVE,)
"""What the query of the archive has for jobs."""


def refuse(
    settings: Settings, jobs: Sequence[str] | None = None
) -> dict[str, tuple[str, ...]]:
    """UserError for what would keep a run from its work; else the jobs of each of its queries.

    What this machine knows comes first, then what a source or a sink answers within its time-out.
    """
    queries = chosen(settings, jobs)
    _ = settings.feed
    manifest.check(settings)
    writable.require(settings)
    run_lock.refuse(settings.warehouse, locked(settings, jobs))
    integrity.check(settings, _on_their_own(settings, jobs, queries))

    from app.alerts import beside as alerts
    from app.ingest import sources  # what they need takes a second to come
    from app.stream import throttle_feed  # what they need takes a second to come

    alerts.check(settings)
    if settings.metrics is not None:
        from app.telemetry.listen import require_free

        require_free(settings.metrics.listen)
    sources.check(settings)
    if list(queries.values()) != [ARCHIVE]:
        throttle_feed.check(settings)
    return queries


def _on_their_own(
    settings: Settings, jobs: Sequence[str] | None, queries: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """The queries that have a checkpoint, or begin one; not those that this run takes apart from
    another, whose checkpoint is still that of the other."""
    apart = {name for split in assigned(settings, jobs).splits for name in split.apart}
    return {name: group for name, group in queries.items() if name not in apart}


def locked(settings: Settings, jobs: Sequence[str] | None) -> list[str]:
    """The queries that a run holds: those that it runs, and those that it takes apart."""
    return list(dict.fromkeys([*assigned(settings, jobs).touched, *chosen(settings, jobs)]))


def assigned(settings: Settings, jobs: Sequence[str] | None) -> Plan:
    """The queries of the configured jobs, limited to `jobs` if given."""
    allowed = [*settings.jobs, *ARCHIVE]
    for job in jobs or ():
        if job not in allowed:
            raise UserError(
                f"--jobs {job}: is not a job of this configuration\n"
                f"allowed: {', '.join(allowed)}"
            )
    return assignment.plan(settings, jobs)


def chosen(settings: Settings, jobs: Sequence[str] | None) -> dict[str, tuple[str, ...]]:
    """Jobs by query of all queries to run, cut down to `jobs` if given; the archive is one of them.

    The settings stay whole: which records the archive keeps must not depend on who runs beside.
    """
    queries = assigned(settings, jobs).queries
    if jobs is None or checkpoints.ARCHIVE in jobs:
        queries[checkpoints.ARCHIVE] = ARCHIVE
    return queries
