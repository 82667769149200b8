"""Polled feeds: polls on the driver during a run, and the folders of their polls.

Every feed has a folder of its own, which outlives a configuration without the feed: polls of a
cluster that was removed are still read, and a cluster that is added again continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING
from urllib.parse import quote

from app.errors import UserError
from app.tables.small_files import local_path
from app.threads import working

if TYPE_CHECKING:
    from app.config.location import Location
    from app.config.source import SourceSettings
    from app.sources.polling import AnyPolling

APART_S = 0.25
"""Time between the first polls of two feeds: together they would need all cores and the memory of
all answers at once, at every interval."""
SPOOL = "_weir/polls"
"""The folders of the feeds of a local warehouse."""


@contextmanager
def polling(
    pollers: Sequence[AnyPolling], endless: bool, say: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Poll while the body runs; each once before it if the run has an end."""
    if not endless:
        with ThreadPoolExecutor(len(pollers)) as pool:
            for done in [pool.submit(_once, poller) for poller in pollers]:
                done.result()
        for poller in pollers:
            if poller.last.problems and say is not None:
                say(poller.last.text())
        yield
        return
    with ExitStack() as stack:
        for number, poller in enumerate(pollers):
            begin = partial(poller.run, after_s=number * APART_S)
            stack.enter_context(working(begin, poller.title))
        yield


def _once(poller: AnyPolling) -> None:
    try:
        poller.poll_once(int(time.time() * 1000))
    finally:
        poller.close()


def spool_folder(feed: SourceSettings, warehouse: Location) -> Path:
    """The folder of a feed's polls and of their memory."""
    name = f"{feed.format}.{quote(feed.polled.cluster, safe='')}"
    return _root(feed, warehouse) / name


def check(module: ModuleType, feed: SourceSettings, warehouse: Location) -> str | None:
    """UserError for a feed that cannot be polled; returns what is worth a note."""
    if feed.path is not None:
        raise UserError(
            f"source.path: format {feed.format} polls a cluster and reads no path\n"
            "the files of polls that were made before are read with format files"
        )
    note: str | None = module.check(feed, spool_folder(feed, warehouse))
    return note


def roots(feeds: Sequence[SourceSettings], warehouse: Location) -> list[Path]:
    """The folders that have those of these feeds, and of others that were there before."""
    return list(dict.fromkeys(_root(feed, warehouse) for feed in feeds))


def _root(feed: SourceSettings, warehouse: Location) -> Path:
    """The folder that has a feed's folder."""
    if feed.polled.spool is not None:
        return Path(feed.polled.spool)
    root = local_path(warehouse.uri)
    if root is None:
        raise UserError(
            f"source.{feed.section}.spool: is missing, and {warehouse.uri} is not a local"
            " folder\nallowed: a folder that this machine and every Spark worker can reach"
        )
    return root / SPOOL
