"""Producer states of a Kafka cluster's partition leaders, polled.

Polls run on the driver beside the queries, through the admin client of its JVM.
`app.sources.kafka.producers_poll` writes the records of each poll as one file into a spool
folder, which `app.sources.poll_stream` reads, and the live ids into the table `producer_id_live`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from app.errors import UserError, reason
from app.sources import polled
from app.sources.kafka.kafka_probe import of_client, require
from app.tables import durable
from app.tables.small_files import local_path

if TYPE_CHECKING:
    from app.config.location import Location
    from app.config.settings import Settings
    from app.config.source import SourceSettings
    from app.sources.kafka.producers_poll import ProducerPoller

NAME = "_weir/kafka_producers"
"""Name of the writer of the tables."""
TABLES = ("producer_id_live", "open_transactions")


def check(feed: SourceSettings, warehouse: Location) -> None:
    """UserError for a cluster that does not answer, or refuses the login.

    It is asked before there is a JVM, so rights on topics are reported by the polls.
    """
    polled.refuse_path(feed)
    polled.spool_folder(feed, warehouse)
    require(feed.reader_options())


def poller(
    settings: Settings, feed: SourceSettings, say: Callable[[str], None] | None = None
) -> ProducerPoller:
    """The poller of the feed; it asks from the JVM of this process' Spark session."""
    from app.sources.kafka.producers_poll import ProducerPoller

    warehouse = settings.location
    options = of_client(feed.reader_options())
    # A window's rows are written when the clock of its key passes its end.
    tick_ms = settings.stats_window_ms + settings.idle_advance_ms + settings.allowed_lateness_ms
    return ProducerPoller(
        feed.producers,
        options,
        polled.spool_folder(feed, warehouse),
        LiveTables(warehouse, settings.maintenance.history_ms),
        say,
        tick_ms,
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
            raise UserError(f"cannot be written: {reason(error)}") from error

    def _writer(self, application: str) -> Any:
        if application not in self._writers:
            from app.tables.commit import Writer

            writer = Writer(self._warehouse, NAME, self._history_ms, application)
            writer.prepare(list(TABLES))
            self._writers[application] = writer
        return self._writers[application]
