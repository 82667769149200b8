"""The sources of raw records, by format in `FORMATS`. Start with `raw`, which is what each gives.
Imports `app.contract`, `app.tables` and `app.config`.

A source is a module with two functions. `check(feed, warehouse)` raises a UserError, before Spark
starts, for a source that cannot be read; `read(reader, feed, warehouse)` returns the records of a
stream or a batch reader. `feed` is the section on the source, `warehouse` the location of the
tables. A polled source also has a `poller`. A source whose `check` compares with earlier runs also
has `claim(feed, warehouse)`, which records what a run begins to read; one that leaves something out
has `notes(feed)`, which says so. A source that plans its own batches has `batch(spark, feed)`,
`stream(spark, feed, warehouse, query, ending)` and `finished(warehouse, query)` in place of `read`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from app.sources import polled
from app.sources.raw import SCHEMA, Raw

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from app.config.location import Location
    from app.config.settings import Settings
    from app.config.source import SourceSettings
    from app.sources.polling import Polling

__all__ = [
    "SCHEMA",
    "Raw",
    "check",
    "claim",
    "keep_polling",
    "notes",
    "open_batch",
    "open_stream",
    "polls",
    "read_batch",
    "read_stream",
]


FORMATS = {
    "delta": "app.sources.files.delta_table",
    "demo": "app.demo.demo_source",
    "files": "app.sources.files.line_files",
    "kafka": "app.sources.kafka.kafka_records",
    "kafka_groups": "app.sources.kafka.groups_source",
    "kafka_logs": "app.sources.kafka.broker_logs",
    "kafka_messages": "app.sources.kafka.kafka_messages",
    "kafka_producers": "app.sources.kafka.producers_source",
    "pulsar": "app.sources.pulsar.pulsar_records",
    "pulsar_admin": "app.sources.pulsar.admin_source",
    "pulsar_messages": "app.sources.pulsar.pulsar_messages",
}
"""The module of each format."""


def _module(feed: SourceSettings) -> ModuleType:
    """The module of the configured source; only it is imported, since a worker that needs one
    function of a source imports this package.
    """
    return import_module(FORMATS[feed.format])


def check(feed: SourceSettings, warehouse: Location) -> None:
    """UserError for a source that cannot be read, with the remedy."""
    _module(feed).check(feed, warehouse)


def notes(feed: SourceSettings) -> list[str]:
    """What a user may not expect of the source as it is now, one sentence each."""
    module = _module(feed)
    found: list[str] = module.notes(feed) if hasattr(module, "notes") else []
    return found


def claim(feed: SourceSettings, warehouse: Location) -> None:
    """Record what the warehouse reads, if the source checks it at the next start."""
    module = _module(feed)
    if hasattr(module, "claim"):
        module.claim(feed, warehouse)


def polls(feed: SourceSettings) -> bool:
    """Whether the source is polled, not read as records come."""
    return hasattr(_module(feed), "poller") and feed.path is None


def keep_polling(
    settings: Settings, endless: bool, say: Callable[[str], None] | None = None
) -> AbstractContextManager[None]:
    """Poll during a run, for a source that polls."""
    polls = poller(settings, say)
    return nullcontext() if polls is None else polled.polling(polls, endless, say)


def poller(settings: Settings, say: Callable[[str], None] | None = None) -> Polling | None:
    """The poller of a source that polls; None for any other, and for recorded polls."""
    feed, warehouse = settings.feed, settings.location
    if feed.format == "kafka_groups":
        from app.sources.kafka import groups_source

        # A check is made when the clock of its key passes it.
        ticks = (
            settings.job_params("backlog")["backlogQuotaCheckIntervalInSeconds"] * 1000,
            settings.idle_advance_ms + settings.allowed_lateness_ms,
        )
        return groups_source.poller(feed, warehouse, settings.policy_dicts(), say, ticks)
    if feed.format == "kafka_producers":
        from app.sources.kafka import producers_source

        # A window's rows are written when the clock of its key passes its end.
        tick_ms = settings.stats_window_ms + settings.idle_advance_ms + settings.allowed_lateness_ms
        history_ms = settings.maintenance.history_ms
        return producers_source.poller(feed, warehouse, history_ms, tick_ms, say)
    if feed.format == "pulsar_admin" and feed.path is None:
        from app.sources.pulsar import admin_source

        return admin_source.poller(feed, warehouse, say)
    return None


def open_stream(
    spark: SparkSession,
    feed: SourceSettings,
    warehouse: Location,
    query: str = "",
    ending: bool = False,
) -> Raw:
    """The records of the source as the stream of a query. With `ending` it stops at the source's
    present end.
    """
    module = _module(feed)
    if hasattr(module, "stream"):
        opened: Raw = module.stream(spark, feed, warehouse, query, ending)
        return opened
    read: Raw = module.read(spark.readStream, feed, warehouse)
    return read


def ends_itself(feed: SourceSettings) -> bool:
    """Whether Spark can stop a query at the source's present end."""
    return not hasattr(_module(feed), "stream")


def finished(feed: SourceSettings, warehouse: Location, query: str) -> bool:
    """Whether a query that Spark cannot stop has reached the end that the source had when it
    started.
    """
    return bool(_module(feed).finished(warehouse, query))


def place_beyond_time(feed: SourceSettings, warehouse: Location, query: str) -> str | None:
    """Where the batch that a query has planned has a record of Kafka whose timestamp Spark cannot
    read; None where that is not found.
    """
    found: str | None = _module(feed).place_beyond_time(feed, warehouse, query)
    return found


def open_batch(spark: SparkSession, feed: SourceSettings, warehouse: Location) -> Raw:
    """The records that the source holds now."""
    module = _module(feed)
    if hasattr(module, "batch"):
        opened: Raw = module.batch(spark, feed)
        return opened
    read: Raw = module.read(spark.read, feed, warehouse)
    return read


def read_stream(spark: SparkSession, feed: SourceSettings, warehouse: Location) -> DataFrame:
    """`open_stream` as a Spark frame of SCHEMA."""
    return open_stream(spark, feed, warehouse).records()


def read_batch(spark: SparkSession, feed: SourceSettings, warehouse: Location) -> DataFrame:
    """`open_batch` as a Spark frame of SCHEMA."""
    return open_batch(spark, feed, warehouse).records()
