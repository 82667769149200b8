"""The tables that polls of producer states write themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from app.errors import UserError, reason
from app.tables import durable
from app.tables.small_files import local_path

if TYPE_CHECKING:
    from app.config.location import Location

NAME = "_weir/kafka_producers"
"""Name of the writer of the tables."""
TABLES = {
    "producer_id_live": ("number", "rows"),
    "open_transactions": ("open_number", "open_rows"),
}
"""By table the keys of the memory that have the number of its newest row, and the rows that it may
lack, by poll."""


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
