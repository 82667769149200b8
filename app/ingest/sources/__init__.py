"""The sources: where raw records come from.

A source is a module with two functions. `check(settings)` raises a UserError for what cannot be
read, before Spark starts; `read(reader, settings)` gives the records of a stream or a batch
reader, which Spark configures alike. One that polls has `beside(settings, endless, say)` as well:
a context that polls. One whose `check` compares with earlier runs has `claim(settings)`, which
records what a run begins to read. One that plans its batches itself has `batch(spark, settings)`,
`stream(spark, settings, query, ending)` and `finished(settings, query)` instead of `read`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from app.ingest.sources.raw import SCHEMA, Raw

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from app.config.settings import Settings

__all__ = [
    "SCHEMA", "Raw", "beside", "check", "claim", "open_batch", "open_stream", "read_batch",
    "read_stream",
]


def _module(settings: Settings) -> ModuleType:
    """The source that is configured: its module has the name of its format.

    Only that one is imported, for a worker that needs one function of it imports this package.
    """
    return import_module(f"{__name__}.{settings.feed.format}")


def check(settings: Settings) -> None:
    """UserError for a source that cannot be read, with the remedy."""
    _module(settings).check(settings)


def claim(settings: Settings) -> None:
    """Record what the warehouse reads, for a source that checks it at the next start."""
    module = _module(settings)
    if hasattr(module, "claim"):
        module.claim(settings)


def beside(
    settings: Settings, endless: bool, say: Callable[[str], None] | None = None
) -> AbstractContextManager[None]:
    """Poll during a run, for a source that polls."""
    module = _module(settings)
    if not hasattr(module, "beside"):
        return nullcontext()
    context: AbstractContextManager[None] = module.beside(settings, endless, say)
    return context


def open_stream(
    spark: SparkSession, settings: Settings, query: str = "", ending: bool = False
) -> Raw:
    """The records of the source as a stream of a query; `ending`: with what is there now."""
    module = _module(settings)
    if hasattr(module, "stream"):
        opened: Raw = module.stream(spark, settings, query, ending)
        return opened
    return module.read(spark.readStream, settings)


def ends_itself(settings: Settings) -> bool:
    """Whether Spark can end a query of the source with what is there."""
    return not hasattr(_module(settings), "stream")


def finished(settings: Settings, query: str) -> bool:
    """Whether a query that Spark cannot end has taken what was there when it was started."""
    return bool(_module(settings).finished(settings, query))


def open_batch(spark: SparkSession, settings: Settings) -> Raw:
    """The records that the source holds now."""
    module = _module(settings)
    if hasattr(module, "batch"):
        opened: Raw = module.batch(spark, settings)
        return opened
    return module.read(spark.read, settings)


def read_stream(spark: SparkSession, settings: Settings) -> DataFrame:
    """`open_stream` as a Spark frame of SCHEMA."""
    return open_stream(spark, settings).records()


def read_batch(spark: SparkSession, settings: Settings) -> DataFrame:
    """`open_batch` as a Spark frame of SCHEMA."""
    return open_batch(spark, settings).records()
