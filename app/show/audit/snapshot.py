"""The version of each table that an audit reads: none within a micro-batch.

A micro-batch commits one table after the other. Between two commits a table may already contain
rows that another lacks, so tables of a batch that has begun and not ended are read as they were
before it. A batch has ended when Spark has written its end into the checkpoint. Where rows of a
batch wait for a common commit (`app.tables.gathering`), tables are read as before this batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app import folders
from app.archive_names import ARCHIVE
from app.read.relations import Warehouse
from app.tables import checkpoints, manifest
from app.tables.checkpoints import FOLDER
from app.tables.definitions import TABLES
from app.tables.gathering import Gathered
from app.tables.small_files import local_path, read_text

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from app.config.location import Location


def committed(warehouse: Warehouse) -> dict[str, DeltaTable | None]:
    """Every table, None where nothing has been written, at its newest version of whole batches."""
    queries = _queries(warehouse)
    waited = {query: _first_gathered(warehouse, query) for query in queries}
    opened = warehouse.open_all(TABLES)
    tables = [table for table in opened.values() if table is not None]
    for query in queries:
        identity = checkpoints.identity(warehouse, query)
        if identity is None:
            continue
        application = identity.applications[-1]
        begun = max((_batch(table, application) for table in tables), default=-1)
        partial = [] if begun < 0 or _ended(warehouse, query, begun) else [begun]
        partial += [
            batch
            for batch in (waited[query], _first_gathered(warehouse, query))
            if batch is not None
        ]
        for table in tables if partial else ():
            while _batch(table, application) >= min(partial) and table.version() > 0:
                table.load_as_version(table.version() - 1)
    return opened


def _ended(warehouse: Location, query: str, batch: int) -> bool:
    folder = checkpoints.logs(warehouse, query)
    return read_text(warehouse, f"{folder}/commits/{batch}") is not None


def _first_gathered(warehouse: Location, query: str) -> int | None:
    """The oldest batch of a query with rows that are in no table yet; None = there is none."""
    return None if local_path(warehouse.uri) is None else Gathered(warehouse, query).first()


def _batch(table: DeltaTable, application: str) -> int:
    """The newest batch of an application that a table has; -1 = none."""
    batch = table.transaction_version(application)
    return -1 if batch is None else batch


def _queries(warehouse: Warehouse) -> list[str]:
    """The queries that write, or have written, to the warehouse."""
    if warehouse.folder is not None:
        return folders.names(warehouse.folder / FOLDER)
    started = manifest.load(warehouse)
    return [*((started and started.queries) or ()), ARCHIVE]
