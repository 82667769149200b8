"""Checks before Spark starts: everything that needs no JVM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.stream import assignment, integrity
from app.warehouse import formats, inventory, manifest, run_lock, writable

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.stream.assignment import Plan


def refuse(settings: Settings, jobs: Sequence[str] | None = None) -> Plan:
    """The queries of the run, restricted to `jobs` if given. UserError for a problem that prevents
    the run.

    Local checks come first, then sources and sinks are contacted within their time-outs.
    """
    inventory.refuse(settings)
    made = assignment.plan(settings, jobs)
    _ = settings.feed
    manifest.check(settings)
    formats.check(settings, made.jobs)
    writable.require(settings)
    run_lock.refuse(settings.warehouse, made.touched)
    integrity.check(settings, made.own)

    from app.alerts import rule_files  # the imports of these take a second
    from app.ingest import sources
    from app.maintain import retention
    from app.stream import saved_states, throttle_feed

    saved_states.refuse(settings)
    if settings.alerts.interval_ms and settings.alerts.rule_files is not None:
        rule_files.rules_of(settings.alerts)
    retention.check(settings)
    if settings.metrics is not None:
        from app.telemetry.listen import require_free

        require_free(settings.metrics.listen)
    sources.check(settings)
    if made.queries:
        throttle_feed.check(settings)
    return made
