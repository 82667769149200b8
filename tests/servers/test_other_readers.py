"""Spark streams and change feeds over Weir's tables: rows come once, whatever maintenance does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

from app.cli import main
from app.config.settings import Settings
from app.run.maintenance.compaction import compact
from app.tables.small_files import path_in
from tests.unit.run.maintenance.tables import LATER_MS, found, opened, rows, writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

MakeSettings = Callable[..., Settings]
NAME = "producer_id_owners"
CHANGES = "_change_type"


class Stream:
    """A Spark stream over a table that stops where the table ends, and goes on from there."""

    def __init__(self, spark: SparkSession, settings: Settings, folder: Path) -> None:
        self._spark = spark
        self._path = path_in(settings.location, NAME)
        self._checkpoint = str(folder / "checkpoint")
        self.seen: Counter[int] = Counter()

    def read(self, **options: str) -> None:
        """Read what is new."""

        def take(frame: Any, _: int) -> None:
            self.seen.update(row.ts_wall_ms for row in frame.select("ts_wall_ms").collect())

        reader = self._spark.readStream.format("delta").options(**options).load(self._path)
        query = (
            reader.writeStream.foreachBatch(take)
            .trigger(availableNow=True)
            .option("checkpointLocation", self._checkpoint)
            .start()
        )
        query.awaitTermination()


def append(settings: Settings, batches: range) -> None:
    """A row for each batch."""
    writing = writer(settings)
    for batch in batches:
        writing.append(NAME, rows(NAME, range(3 * batch, 3 * batch + 1)), batch)


@pytest.fixture
def settings(make_settings: MakeSettings) -> Settings:
    """A warehouse of the test's own."""
    return make_settings()


@pytest.fixture
def stream(spark: SparkSession, settings: Settings, tmp_path: Path) -> Stream:
    """A stream that has read the rows of the first four batches."""
    made = Stream(spark, settings, tmp_path)
    append(settings, range(4))
    made.read()
    return made


def times(settings: Settings) -> Counter[int]:
    """The rows of the table by one of their columns."""
    return Counter(found(settings, NAME).column("ts_wall_ms").to_pylist())


def merge(settings: Settings) -> None:
    table = opened(settings, NAME)
    assert compact(table, settings.maintenance, LATER_MS).before


def forget(settings: Settings) -> None:
    user = next(user for user in found(settings, NAME).column("user").to_pylist() if user)
    assert main(["forget", "--warehouse", settings.warehouse, "--principal", user]) == 0


def test_a_stream_reads_every_row_once_beside_merges(settings: Settings, stream: Stream) -> None:
    append(settings, range(4, 8))
    stream.read()
    merge(settings)
    append(settings, range(8, 10))
    stream.read()
    assert stream.seen == times(settings) and stream.seen.total() == 10


def test_a_stream_goes_past_rows_that_were_changed_if_it_may_skip_them(
    settings: Settings, stream: Stream
) -> None:
    forget(settings)
    append(settings, range(4, 6))
    with pytest.raises(StreamingQueryException, match="skipChangeCommits"):
        stream.read()
    stream.read(skipChangeCommits="true")
    assert stream.seen == times(settings) and stream.seen.total() == 6


def test_a_change_feed_has_new_rows_as_inserts_and_no_merges(
    spark: SparkSession, make_settings: MakeSettings
) -> None:
    settings = make_settings()
    append(settings, range(1))
    path = path_in(settings.location, NAME)
    DeltaTable(path).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    since = DeltaTable(path).version()
    append(settings, range(1, 10))
    merge(settings)
    append(settings, range(10, 12))
    feed = (
        spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", since)
        .load(path)
    )
    changes = feed.select(CHANGES, "ts_wall_ms").collect()
    assert {row[CHANGES] for row in changes} == {"insert"}
    new = rows(NAME, range(1)).column("ts_wall_ms").to_pylist()
    assert Counter(row.ts_wall_ms for row in changes) == times(settings) - Counter(new)
    forget(settings)
    assert times(settings).total() == 12
