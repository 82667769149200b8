"""Replaces files of a table in one commit, beside writers that append to it.

delta-rs does not refuse a commit that removes a file which another commit has already removed, so
rows merged twice would be in the table twice. Therefore the files are looked up in the newest
version, and the commit is accepted only as the version after that one; otherwise both are repeated.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from deltalake import CommitProperties
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from app.run.maintenance.opened import Opened
from app.tables import durable
from app.tables.data_files import DataFile, live_paths
from app.tables.time_travel import COMPACTION, MAINTENANCE, RETENTION

ATTEMPTS = 50
LONGEST_PAUSE_S = 0.05


def clock_ms() -> int:
    """Time at which replaced files are marked as removed (ms since the epoch)."""
    return time.time_ns() // 1_000_000


def exchange(
    opened: Opened, gone: Sequence[DataFile], added: Sequence[AddAction], data_change: bool
) -> bool:
    """Replace files by others. Returns False if one of them has left the table meanwhile, or if
    other writers commit without a pause. `data_change` states that rows leave the table.
    """
    delta = opened.delta
    folder = opened.warehouse.folder
    if added and folder is not None:
        durable.sync(folder)  # before the log names them
    paths = {file.path for file in gone}
    for _ in range(ATTEMPTS):
        delta.update_incremental()
        if not paths <= live_paths(delta):
            return False
        now_ms = clock_ms()
        removed = [
            RemoveAction(
                file.path,
                data_change,
                deletion_timestamp=now_ms,
                partition_values=dict(file.partition),
                size=file.bytes,
            )
            for file in gone
        ]
        only_next = CommitProperties(
            max_commit_retries=0,
            custom_metadata={MAINTENANCE: RETENTION if data_change else COMPACTION},
        )
        try:
            delta.create_write_transaction(
                [*removed, *added],
                "append",
                delta.schema(),
                list(delta.metadata().partition_columns),
                commit_properties=only_next,
            )
        except CommitFailedError:
            time.sleep(random.uniform(0, LONGEST_PAUSE_S))
            continue
        if folder is not None:
            durable.sync(folder)  # a commit without contents would stop every reader
        delta.update_incremental()
        return True
    return False
