"""Producer states of a Kafka cluster's partition leaders, polled.

Polls run on the driver beside the queries, through the admin client of its JVM.
`app.sources.kafka.producers_poll` writes the records of each poll as one file into a spool
folder, and the live ids into the table `producer_id_live`. This module reads the files like any
others, so records keep their identity and a restarted run continues where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.config.kafka_producers import WHERE
from app.errors import UserError
from app.sources import polled
from app.sources.files import line_files
from app.sources.kafka.kafka_probe import topics
from app.sources.ports import Unreachable
from app.tables import durable
from app.tables.small_files import local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader
    from pyspark.sql.streaming import DataStreamReader

    from app.config.location import Location
    from app.config.source import SourceSettings
    from app.sources.kafka.producers_poll import ProducerPoller
    from app.sources.raw import Raw

NAME = "_weir/kafka_producers"
TABLES = ("producer_id_live", "open_transactions")


def check(feed: SourceSettings, warehouse: Location) -> None:
    """UserError for a cluster that does not answer, or refuses the login.

    It is asked before there is a JVM, so rights on topics are reported by the polls.
    """
    if feed.path is not None:
        raise UserError(
            "source.path: format kafka_producers polls a cluster and reads no path\n"
            "the files of polls that were made before are read with format files"
        )
    spool_folder(feed, warehouse)
    options = feed.reader_options()
    servers = options["kafka.bootstrap.servers"]
    try:
        topics(options)
    except Unreachable as error:
        raise UserError(
            f"source.options: {servers}: {error}\nthe kafka.* options decide this"
        ) from None


def read(
    reader: DataFrameReader | DataStreamReader, feed: SourceSettings, warehouse: Location
) -> Raw:
    """The records of the polls in the spool folder."""
    records = spool_folder(feed, warehouse) / "polls"
    records.mkdir(parents=True, exist_ok=True)
    feed = feed.model_copy(update={"options": {}})  # the options are for Kafka
    return line_files.read_path(reader, str(records), feed)


def spool_folder(feed: SourceSettings, warehouse: Location) -> Path:
    """The folder of the polls: as configured, else below a local warehouse."""
    return polled.spool_folder(warehouse, feed.producers.spool, WHERE, NAME)


def poller(
    feed: SourceSettings,
    warehouse: Location,
    history_ms: int,
    tick_ms: int,
    say: Callable[[str], None] | None = None,
) -> ProducerPoller:
    """The poller of the source; it asks from the JVM of this process' Spark session."""
    from app.sources.kafka.producers_poll import ProducerPoller

    options = {key.removeprefix("kafka."): value for key, value in feed.reader_options().items()}
    live = LiveTables(warehouse, history_ms)
    return ProducerPoller(
        feed.producers, options, spool_folder(feed, warehouse), live, say, tick_ms
    )


class LiveTables:
    """The tables `producer_id_live` and `open_transactions` of a warehouse."""

    def __init__(self, warehouse: Location, history_ms: int) -> None:
        self._warehouse, self._history_ms = warehouse, history_ms
        self._writers: dict[str, Any] = {}

    def append(self, application: str, table: str, rows: list[dict[str, Any]]) -> None:
        """Append the rows of a poll to a table, in the order of their `number`, unless the table has them;
        without rows only create it. Raises UserError where it cannot be written."""
        import pyarrow as pa
        from deltalake.exceptions import DeltaError

        from app.tables import definitions

        try:
            writer = self._writer(application)
            if rows:
                given = pa.Table.from_pylist(rows, schema=definitions.TABLES[table].schema)
                writer.append(table, given, rows[-1]["number"])
                root = local_path(self._warehouse.uri)
                if root is not None:
                    durable.sync(root)  # before the memory of the polls forgets the rows
        except (DeltaError, OSError) as error:
            self._writers.clear()
            raise UserError(f"cannot be written: {str(error).splitlines()[0][:200]}") from error

    def _writer(self, application: str) -> Any:
        if application not in self._writers:
            from app.tables.commit import Writer

            writer = Writer(self._warehouse, NAME, self._history_ms, application)
            writer.prepare(list(TABLES))
            self._writers[application] = writer
        return self._writers[application]
