"""The sources of raw records, by format in `FORMATS`. Start with `raw`, which is what each gives.
Imports `app.contract`, `app.tables` and `app.config`.

A source is a module with two functions. `check(settings)` raises a UserError, before Spark starts,
for a source that cannot be read; `read(reader, settings)` returns the records of a stream or a
batch reader. A polled source also has `polling(settings, endless, say)`: a context that polls. A
source whose `check` compares with earlier runs also has `claim(settings)`, which records what a run
begins to read; one that leaves something out has `notes(settings)`, which says so. A source that
plans its own batches has `batch(spark, settings)`, `stream(spark, settings, query, ending)` and
`finished(settings, query)` in place of `read`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from app.sources.raw import SCHEMA, Raw

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from app.config.settings import Settings

__all__ = [
    "SCHEMA",
    "Raw",
    "check",
    "claim",
    "keep_polling",
    "notes",
    "open_batch",
    "open_stream",
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


def _module(settings: Settings) -> ModuleType:
    """The module of the configured source; only it is imported, since a worker that needs one
    function of a source imports this package.
    """
    return import_module(FORMATS[settings.feed.format])


def check(settings: Settings) -> None:
    """UserError for a source that cannot be read, with the remedy."""
    _module(settings).check(settings)


def notes(settings: Settings) -> list[str]:
    """What a user may not expect of the source as it is now, one sentence each."""
    module = _module(settings)
    found: list[str] = module.notes(settings) if hasattr(module, "notes") else []
    return found


def claim(settings: Settings) -> None:
    """Record what the warehouse reads, if the source checks it at the next start."""
    module = _module(settings)
    if hasattr(module, "claim"):
        module.claim(settings)


def keep_polling(
    settings: Settings, endless: bool, say: Callable[[str], None] | None = None
) -> AbstractContextManager[None]:
    """Poll during a run, for a source that polls."""
    module = _module(settings)
    if not hasattr(module, "polling"):
        return nullcontext()
    context: AbstractContextManager[None] = module.polling(settings, endless, say)
    return context


def open_stream(
    spark: SparkSession, settings: Settings, query: str = "", ending: bool = False
) -> Raw:
    """The records of the source as the stream of a query. With `ending` it stops at the source's
    present end.
    """
    module = _module(settings)
    if hasattr(module, "stream"):
        opened: Raw = module.stream(spark, settings, query, ending)
        return opened
    read: Raw = module.read(spark.readStream, settings)
    return read


def ends_itself(settings: Settings) -> bool:
    """Whether Spark can stop a query at the source's present end."""
    return not hasattr(_module(settings), "stream")


def finished(settings: Settings, query: str) -> bool:
    """Whether a query that Spark cannot stop has reached the end that the source had when it
    started.
    """
    return bool(_module(settings).finished(settings, query))


def place_beyond_time(settings: Settings, query: str) -> str | None:
    """Where the batch that a query has planned has a record of Kafka whose timestamp Spark cannot
    read; None where that is not found.
    """
    found: str | None = _module(settings).place_beyond_time(settings, query)
    return found


def open_batch(spark: SparkSession, settings: Settings) -> Raw:
    """The records that the source holds now."""
    module = _module(settings)
    if hasattr(module, "batch"):
        opened: Raw = module.batch(spark, settings)
        return opened
    read: Raw = module.read(spark.read, settings)
    return read


def read_stream(spark: SparkSession, settings: Settings) -> DataFrame:
    """`open_stream` as a Spark frame of SCHEMA."""
    return open_stream(spark, settings).records()


def read_batch(spark: SparkSession, settings: Settings) -> DataFrame:
    """`open_batch` as a Spark frame of SCHEMA."""
    return open_batch(spark, settings).records()
