"""Removes files below `_weir` that interrupted commands have left: unfinished copies of checkpoints
and small files.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from app import folders
from app.tables import durable, run_lock
from app.tables.checkpoints import COPYING, FOLDER
from app.tables.small_files import local_path

if TYPE_CHECKING:
    from app.config.location import Location
    from app.config.maintenance import MaintenanceSettings


def sweep(warehouse: Location, maintenance: MaintenanceSettings, dry_run: bool) -> list[Path]:
    """Remove leftovers older than `orphans_ms` that no start can use; returns their paths.

    Checkpoints of queries that the configuration no longer has stay: their jobs continue there when
    they come back.
    """
    root = local_path(warehouse.uri)
    if root is None or not (root / "_weir").is_dir() or run_lock.at_work(warehouse):
        return []
    before = time.time() - maintenance.orphans_ms / 1000
    there = {path: folders.look(path) for path in _unfinished(root)}
    found = sorted(path for path, about in there.items() if about and about.st_mtime < before)
    for path in () if dry_run else found:
        folders.remove(path)
    return found


def _unfinished(root: Path) -> Iterator[Path]:
    yield from folders.matching(root / FOLDER, f"*{COPYING}")
    for file in folders.files_below(root / "_weir"):
        if file.path.name.startswith(".") and file.path.name.endswith(durable.UNFINISHED):
            yield file.path
