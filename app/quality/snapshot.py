"""The version of each table that an audit reads: none within a micro-batch.

A micro-batch commits one table after the other. Between two commits a table may already contain
rows that another lacks, so tables of a batch that has begun and not ended are read as they were
before it. A batch has ended when Spark has written its end into the checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.warehouse import manifest
from app.warehouse.checkpoints import APPLICATION, ARCHIVE, FOLDER
from app.warehouse.relations import Warehouse
from app.warehouse.small_files import read_text
from app.warehouse.tables import TABLES

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from app.config.settings import Settings


def committed(settings: Settings) -> dict[str, DeltaTable | None]:
    """Every table, None where nothing has been written, at its newest version of whole batches."""
    warehouse = Warehouse.of(settings)
    opened = warehouse.open_all(TABLES)
    tables = [table for table in opened.values() if table is not None]
    for query in _queries(settings, warehouse):
        application = read_text(settings, f"{FOLDER}/{query}/{APPLICATION}")
        if application is None:
            continue
        begun = max((_batch(table, application) for table in tables), default=-1)
        if begun < 0 or read_text(settings, f"{FOLDER}/{query}/commits/{begun}") is not None:
            continue
        for table in tables:
            while _batch(table, application) == begun and table.version() > 0:
                table.load_as_version(table.version() - 1)
    return opened


def _batch(table: DeltaTable, application: str) -> int:
    """The newest batch of an application that a table has; -1 = none."""
    batch = table.transaction_version(application)
    return -1 if batch is None else batch


def _queries(settings: Settings, warehouse: Warehouse) -> list[str]:
    """The queries that write, or have written, to the warehouse."""
    if warehouse.folder is not None:
        folder = warehouse.folder / FOLDER
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    started = manifest.load(settings)
    return [*((started and started.queries) or ()), ARCHIVE]
