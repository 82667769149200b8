"""Creates a table of a warehouse, with the meaning of the table and of its columns in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from app.tables.definitions import TABLES
from app.tables.small_files import path_in

if TYPE_CHECKING:
    from app.config.location import Location


def create(
    warehouse: Location, name: str, configuration: Mapping[str, str | None] | None = None
) -> None:
    """Create a table unless it is there."""
    from deltalake import DeltaTable

    definition = TABLES[name]
    DeltaTable.create(
        path_in(warehouse, name),
        definition.described,
        mode="ignore",
        partition_by=list(definition.partition_by) or None,
        description=definition.meaning,
        configuration=configuration,
        storage_options=warehouse.storage(),
    )
