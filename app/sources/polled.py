"""Common parts of polled sources: polls on the driver during a run, and their folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from app.errors import UserError
from app.tables.small_files import local_path
from app.threads import working

if TYPE_CHECKING:
    from app.config.location import Location
    from app.sources.polling import Polling

GZIP_RATIO = 30
"""How many bytes of records a byte of a poll's file is taken for."""


@contextmanager
def polling(
    poller: Polling, endless: bool, say: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Poll while the body runs; once before it if the run has an end."""
    if not endless:
        poller.poll_once(int(time.time() * 1000))
        poller.close()
        if poller.last.problems and say is not None:
            say(poller.last.text())
        yield
        return
    with working(poller.run, poller.feed):
        yield


def spool_folder(warehouse: Location, chosen: str | None, where: str, name: str) -> Path:
    """The folder of the polls: as configured, else `name` below a local warehouse. `where` is the
    place of the feed's settings.
    """
    if chosen is not None:
        return Path(chosen)
    root = local_path(warehouse.uri)
    if root is None:
        raise UserError(
            f"{where}.spool: is missing, and {warehouse.uri} is not a local folder\n"
            "allowed: a folder that this machine and every Spark worker can reach"
        )
    return root / name
