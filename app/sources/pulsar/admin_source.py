"""A Pulsar cluster's admin interface, polled; or a folder of recorded polls.

Polls run on the driver beside the queries: `app.sources.pulsar.admin_poll` writes the records of
each poll as one file into a spool folder, which `app.sources.poll_stream` reads.

With `path` nothing is polled: the recorded polls of that folder are mapped once, in the order of
their times, into a folder of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from app.config.pulsar_admin import WHERE, PulsarAdminSettings
from app.errors import UserError
from app.sources import polled
from app.sources.files import line_files
from app.sources.pulsar.admin_poll import AdminPoller
from app.sources.pulsar.recorded import convert, recordings
from app.terminal.printable import say

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamReader

    from app.config.location import Location
    from app.config.settings import Settings
    from app.config.source import SourceSettings
    from app.sources.raw import Raw


def check(feed: SourceSettings, warehouse: Location) -> None:
    """UserError for a cluster that does not answer, a refused token, or invalid recordings."""
    answer(feed, warehouse)


def answer(feed: SourceSettings, warehouse: Location) -> str | None:
    """As `check`; returns a note about the cluster's name and its ages."""
    if feed.path is not None:
        recordings(Path(feed.path))
        return None
    return _poller(feed, warehouse).check()


def read(reader: DataStreamReader, feed: SourceSettings, warehouse: Location) -> Raw:
    """The records of recorded polls."""
    folder = polled.recorded_folder(feed, warehouse)
    done = convert(Path(str(feed.path)), folder, admin(feed))
    if done.problems or done.notes:
        say(done.text(), file=sys.stderr, flush=True)
    records = folder / "polls"
    records.mkdir(parents=True, exist_ok=True)
    return line_files.read_path(reader, str(records), feed)


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
