"""A Pulsar cluster's admin interface, polled; or a folder of recorded polls.

Polls run on the driver beside the queries: `app.sources.pulsar.admin_poll` writes the records of
each poll as one file into a spool folder. This module reads these files like any others, so records
keep their identity and a restarted run continues where it stopped.

With `source.path` nothing is polled: the recorded polls of that folder are mapped once, in the
order of their times, into the same spool folder.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
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
    from pyspark.sql import DataFrameReader
    from pyspark.sql.streaming import DataStreamReader

    from app.config.settings import Settings
    from app.sources.raw import Raw

NAME = "_weir/pulsar_admin"


def check(settings: Settings) -> None:
    """UserError for a cluster that does not answer, a refused token, or invalid recordings."""
    answer(settings)


def answer(settings: Settings) -> str | None:
    """As `check`; returns a note about the cluster's name."""
    spool_folder(settings)
    if settings.feed.path is not None:
        recordings(Path(settings.feed.path))
        return None
    return AdminPoller(admin(settings), spool_folder(settings)).check()


def read(reader: DataFrameReader | DataStreamReader, settings: Settings) -> Raw:
    """The records of the polls in the spool folder."""
    folder = spool_folder(settings)
    if settings.feed.path is not None:
        folder = folder.with_name(f"{folder.name}_recorded")
        done = convert(Path(settings.feed.path), folder, admin(settings))
        if done.problems or done.notes:
            say(done.text(), file=sys.stderr, flush=True)
    records = folder / "polls"
    records.mkdir(parents=True, exist_ok=True)
    return line_files.read_path(reader, str(records), settings.feed)


def polling(
    settings: Settings, endless: bool, say: Callable[[str], None] | None = None
) -> AbstractContextManager[None]:
    """Poll while the body runs; once before it if the run has an end.

    Does nothing for another source, or if recorded polls are read.
    """
    if settings.feed.format != "pulsar_admin" or settings.feed.path is not None:
        return nullcontext()
    return polled.polling(AdminPoller(admin(settings), spool_folder(settings), say), endless, say)


def admin(settings: Settings) -> PulsarAdminSettings:
    """The settings of the polls."""
    found: PulsarAdminSettings | None = getattr(settings.feed, "admin", None)
    if found is None:
        raise UserError(f"{WHERE}: is missing, format pulsar_admin needs it")
    return found


def spool_folder(settings: Settings) -> Path:
    """The folder of the polls: as configured, else below a local warehouse."""
    return polled.spool_folder(settings, admin(settings).spool, WHERE, NAME)
