"""The sources of raw records, by format in `FORMATS`. Start with `raw`, which is what each gives.
Imports `app.contract`, `app.tables` and `app.config`.

A source is a module with two functions. `check(feed, warehouse)` raises a UserError, before Spark
starts, for a feed that cannot be read; `read(reader, feed, warehouse)` returns the records of a
stream reader. `feed` is one section on the source, `warehouse` the location of the
tables. The module of a polled feed has `check(feed, folder)`, which returns what is worth a note, and
in place of `read` its `poller(settings, feed, folder, say)`, a `polling.Polling`: the polls
of all feeds are read by `poll_stream`, beside the one source that is streamed. A source whose
`check` compares with earlier runs also has `claim(feed, warehouse)`, which records what a run begins
to read; one that leaves something out has `notes(feed)`, which says so. One that gives some
kinds of events only to jobs that read them (`feed.on_request`) gets the `kinds` of all jobs in `read`. A
source that plans its own batches has `stream(spark, feed, warehouse, query, ending)` and
`finished(warehouse, query)` in place of `read`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from app.errors import NotNow, UserError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.location import Location
    from app.config.settings import Settings
    from app.config.source import SourceSettings
    from app.sources.polling import AnyPolling
    from app.sources.raw import Raw

__all__ = [
    "check",
    "check_all",
    "claim",
    "keep_polling",
    "notes",
    "open_stream",
    "poller",
]


FORMATS = {
    "archive": "app.sources.files.archived_records",
    "delta": "app.sources.files.delta_table",
    "files": "app.sources.files.line_files",
    "kafka": "app.sources.kafka.kafka_records",
    "kafka_groups": "app.sources.kafka.groups_poll",
    "kafka_logs": "app.sources.kafka.broker_logs",
    "kafka_messages": "app.sources.kafka.kafka_messages",
    "kafka_producers": "app.sources.kafka.producers_poll",
    "kafka_quotas": "app.sources.kafka.quotas_poll",
    "pulsar": "app.sources.pulsar.pulsar_records",
    "pulsar_admin": "app.sources.pulsar.admin_poll",
    "pulsar_messages": "app.sources.pulsar.pulsar_messages",
}
"""The module of each format; an archive comes before a configured one."""


def _module(feed: SourceSettings) -> ModuleType:
    """The module of a feed; only it is imported, since a worker that needs one function of a source
    imports this package.
    """
    return import_module(FORMATS[feed.format])


def check(feed: SourceSettings, warehouse: Location) -> str | None:
    """UserError for a feed that cannot be read, with the remedy; returns a note about one that is
    polled.
    """
    module = _module(feed)
    if hasattr(module, "poller"):
        from app.sources import polled

        return polled.check(module, feed, warehouse)
    module.check(feed, warehouse)
    return None


def check_all(settings: Settings) -> None:
    """UserError for a source of which nothing can be read. Where several clusters are polled, one
    that does not answer costs itself alone, and its polls say so.
    """
    failed: list[UserError] = []
    for feed in settings.feeds:
        try:
            check(feed, settings.location)
        except UserError as error:
            if not feed.is_polled:
                raise
            failed.append(error)
    if failed and len(failed) == len(settings.feeds):
        # with what may answer later the run can begin
        raise next((each for each in failed if isinstance(each, NotNow)), failed[0])


def notes(settings: Settings) -> list[str]:
    """What a user may not expect of the feeds as they are now, one sentence each."""
    found: list[str] = []
    for feed in settings.feeds:
        module = _module(feed)
        found += module.notes(feed) if hasattr(module, "notes") else []
    return found


def claim(settings: Settings) -> None:
    """Record what the warehouse reads, for feeds that check it at the next start."""
    for feed in settings.feeds:
        module = _module(feed)
        if hasattr(module, "claim"):
            module.claim(feed, settings.location)


def keep_polling(
    settings: Settings,
    queries: Collection[str],
    endless: bool,
    say: Callable[[str], None] | None = None,
) -> AbstractContextManager[None]:
    """Poll during a run of these queries, for feeds that are polled."""
    from app.sources import poll_plan, polled

    pollers = [poller(settings, feed, say) for feed in settings.polled]
    for each in pollers:
        folder = each.spool.folder.name
        each.needed = partial(poll_plan.needed, settings.location, queries, folder)
    return polled.polling(pollers, endless, say) if pollers else nullcontext()


def poller(
    settings: Settings, feed: SourceSettings, say: Callable[[str], None] | None = None
) -> AnyPolling:
    """The poller of a polled feed."""
    from app.sources import polled

    folder = polled.spool_folder(feed, settings.location)
    made: AnyPolling = _module(feed).poller(settings, feed, folder, say)
    return made


def open_stream(
    spark: SparkSession, settings: Settings, query: str = "", ending: bool = False
) -> Raw:
    """The records of the source as the stream of a query. With `ending` it stops at the source's
    present end.
    """
    from app.sources.raw import joined

    feed = settings.streamed
    parts = [] if feed is None else [_streamed(spark, feed, settings, query, ending)]
    if settings.polled:
        from app.sources import poll_stream

        parts.append(poll_stream.stream(spark, settings, query, ending))
    return joined(parts)


def _streamed(
    spark: SparkSession, feed: SourceSettings, settings: Settings, query: str, ending: bool
) -> Raw:
    from state.jobs import DECLARED

    module = _module(feed)
    if hasattr(module, "stream"):
        opened: Raw = module.stream(spark, feed, settings.location, query, ending)
        return opened
    more = {}
    if feed.on_request:
        more["kinds"] = frozenset(k for job in settings.jobs for k in DECLARED[job].kinds)
    read: Raw = module.read(spark.readStream, feed, settings.location, **more)
    return read


def ends_itself(settings: Settings) -> bool:
    """Whether Spark can stop a query at the source's present end."""
    feed = settings.streamed
    return feed is not None and not hasattr(_module(feed), "stream")


def finished(settings: Settings, query: str) -> bool:
    """Whether a query that Spark cannot stop has reached the end that the source had when it
    started.
    """
    feed, warehouse = settings.streamed, settings.location
    if settings.polled:
        from app.sources import poll_stream

        if not poll_stream.finished(warehouse, query):
            return False
    return feed is None or bool(_module(feed).finished(warehouse, query))


def place_beyond_time(feed: SourceSettings, warehouse: Location, query: str) -> str | None:
    """Where the batch that a query has planned has a record of Kafka whose timestamp Spark cannot
    read; None where that is not found.
    """
    found: str | None = _module(feed).place_beyond_time(feed, warehouse, query)
    return found
