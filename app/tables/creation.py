"""Creates a table of a warehouse, with the meaning of the table and of its columns in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from app.tables.definitions import TABLES
from app.tables.small_files import path_in

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from app.config.location import Location


def create(
    warehouse: Location, name: str, configuration: Mapping[str, str | None] | None = None
) -> DeltaTable:
    """Create a table unless it is there."""
    from deltalake import DeltaTable
    from deltalake.exceptions import CommitFailedError

    definition, path = TABLES[name], path_in(warehouse, name)
    try:
        return DeltaTable.create(
            path,
            definition.described,
            mode="ignore",
            partition_by=list(definition.partition_by) or None,
            description=definition.meaning,
            configuration=configuration,
            storage_options=warehouse.storage(),
        )
    except CommitFailedError:  # by another meanwhile, or by this one, and the answer was lost
        return DeltaTable(path, storage_options=warehouse.storage())
