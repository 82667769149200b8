"""A Pulsar cluster's admin interface, polled.

Polls run on the driver beside the queries: `app.sources.pulsar.admin_poll` writes the records of
each poll as one file into a spool folder, which `app.sources.poll_stream` reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from app.config.pulsar_admin import WHERE, PulsarAdminSettings
from app.errors import UserError
from app.sources import polled
from app.sources.pulsar.admin_poll import AdminPoller

if TYPE_CHECKING:
    from app.config.location import Location
    from app.config.settings import Settings
    from app.config.source import SourceSettings


def check(feed: SourceSettings, warehouse: Location) -> None:
    """UserError for a cluster that does not answer, and a refused token."""
    answer(feed, warehouse)


def answer(feed: SourceSettings, warehouse: Location) -> str | None:
    """As `check`; returns a note about the cluster's name and its ages."""
    polled.refuse_path(feed)
    return _poller(feed, warehouse).check()


def poller(
    settings: Settings, feed: SourceSettings, say: Callable[[str], None] | None = None
) -> AdminPoller:
    """The poller of the feed."""
    return _poller(feed, settings.location, say)


def _poller(
    feed: SourceSettings, warehouse: Location, say: Callable[[str], None] | None = None
) -> AdminPoller:
    return AdminPoller(admin(feed), polled.spool_folder(feed, warehouse), say)


def admin(feed: SourceSettings) -> PulsarAdminSettings:
    """The settings of the polls."""
    found: PulsarAdminSettings | None = getattr(feed, "admin", None)
    if found is None:
        raise UserError(f"{WHERE}: is missing, format pulsar_admin needs it")
    return found
