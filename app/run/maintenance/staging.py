"""Maintenance of `chunk_payloads`: removes files that no message needs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from app.engine.payloads import STAGED
from app.tables.definitions import TABLES
from app.tables.small_files import path_in
from state.engine.payloads import RELEASES

if TYPE_CHECKING:
    from deltalake.transaction import AddAction

    from app.config.location import Location

KEPT_HOURS = 1
"""Hours for which data files of removed rows stay, for running readers."""


def sweep(warehouse: Location, kept_hours: int = KEPT_HOURS) -> int:
    """Remove files whose rows have all been released from the table, and delete those that left it
    more than `kept_hours` ago. Returns the number of removed files.

    A query may run meanwhile: only files that its state has released are touched.
    """
    from deltalake import DeltaTable, Schema
    from deltalake.transaction import RemoveAction

    options = warehouse.storage()
    paths = [path_in(warehouse, name) for name in (STAGED, RELEASES)]
    if not all(DeltaTable.is_deltatable(path, options) for path in paths):
        return 0
    staged, releases = (DeltaTable(path, storage_options=options) for path in paths)
    released: dict[str, int] = {}
    for row in releases.to_pyarrow_table().to_pylist():
        released[row["file"]] = released.get(row["file"], 0) + row["rows"]
    now = time.time_ns() // 1_000_000
    gone: list[AddAction | RemoveAction] = [
        RemoveAction(
            file["path"],
            True,
            deletion_timestamp=now,
            partition_values={},
            size=file["size_bytes"],
        )
        for file in _files(staged)
        if released.get(file["path"], 0) >= file["num_records"]
    ]
    if gone:
        staged.create_write_transaction(
            gone, "append", Schema.from_arrow(TABLES[STAGED].schema), []
        )
    staged.update_incremental()
    staged.vacuum(
        retention_hours=kept_hours, enforce_retention_duration=False, dry_run=False, full=True
    )
    return len(gone)


def _files(table: Any) -> list[dict[str, Any]]:
    import pyarrow as pa

    found: list[dict[str, Any]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return found
