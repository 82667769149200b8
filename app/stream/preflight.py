"""Checks of a run before Spark starts: everything that needs no JVM."""

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
"""The pseudo-job of the archive's query."""


def refuse(
    settings: Settings, jobs: Sequence[str] | None = None
) -> dict[str, tuple[str, ...]]:
    """UserError for a problem that prevents the run; else the jobs of each of its queries.

    Local checks come first, then the answers of sources and sinks within their time-outs.
    """
    queries = chosen(settings, jobs)
    _ = settings.feed
    manifest.check(settings)
    writable.require(settings)
    run_lock.refuse(settings.warehouse, locked(settings, jobs))
    integrity.check(settings, _on_their_own(settings, jobs, queries))

    from app.alerts import beside as alerts
    from app.ingest import sources  # their imports take a second
    from app.stream import throttle_feed  # their imports take a second

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
    """The queries that have a checkpoint, or begin one; not those that this run splits from
    another, whose checkpoint is still that of the other."""
    apart = {name for split in assigned(settings, jobs).splits for name in split.apart}
    return {name: group for name, group in queries.items() if name not in apart}


def locked(settings: Settings, jobs: Sequence[str] | None) -> list[str]:
    """The queries that a run holds: those that it runs, and those that it splits."""
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

    The settings stay whole: which records the archive keeps must not depend on the other runs.
    """
    queries = assigned(settings, jobs).queries
    if jobs is None or checkpoints.ARCHIVE in jobs:
        queries[checkpoints.ARCHIVE] = ARCHIVE
    return queries
