"""Checks before Spark starts: everything that needs no JVM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.engine import assignment
from app.errors import UserError
from app.run import integrity
from app.tables import formats, inventory, manifest, run_lock, succession, writable

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.engine.assignment import QueryPlan


def refuse(
    settings: Settings, jobs: Sequence[str] | None = None, archive: str | None = None
) -> QueryPlan:
    """The queries of the run, restricted to `jobs` if given. UserError for a problem that prevents
    the run, or its beginning with the `archive` of another warehouse.

    Local checks come first, then sources and sinks are contacted within their time-outs.
    """
    inventory.refuse(settings.location)
    made = assignment.plan(settings, jobs)
    _ = settings.feeds
    manifest.check(settings.location, settings.partitions, settings.shards)
    formats.check(settings.location, made.jobs)
    writable.require(settings.location)
    run_lock.refuse(settings.warehouse, made.touched)
    integrity.check(settings, made.own)
    if archive is not None:
        streamed = getattr(settings.streamed, "format", None)
        succession.check(settings.location, archive, streamed, bool(settings.polled))
    if jobs is not None and (archive is not None or succession.unread(settings.location)):
        raise UserError(
            f"--jobs: every job reads the archive that {succession.OPTION} has named\n"
            "leave --jobs out until it is read"
        )

    from app import sources
    from app.engine import throttle_publisher
    from app.run.maintenance import retention
    from app.show.alerts import rule_files  # the imports of these take a second

    if settings.alerts.interval_ms and settings.alerts.rule_files is not None:
        rule_files.rules_of(settings.alerts)
    retention.check(settings.maintenance)
    if settings.metrics is not None:
        from app.show.metrics.listen import require_free

        require_free(settings.metrics.listen)
    sources.check_all(settings)
    if made.jobs and settings.throttle_feed is not None:
        throttle_publisher.check(settings.throttle_feed)
    return made
