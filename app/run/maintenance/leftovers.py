"""Removes files below `_weir` that interrupted commands have left: unfinished copies of checkpoints
and small files.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from app.tables import manifest, run_lock
from app.tables.checkpoints import COPYING, FOLDER, RESHARDING
from app.tables.durable import UNFINISHED
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
    found = sorted(path for path in _unfinished(warehouse, root) if path.stat().st_mtime < before)
    for path in () if dry_run else found:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return found


def _unfinished(warehouse: Location, root: Path) -> Iterator[Path]:
    yield from (root / FOLDER).glob(f"*{COPYING}")
    kept = manifest.load(warehouse)
    if kept is not None and kept.moving is None:
        yield from root.glob(RESHARDING)
    for path in (root / "_weir").rglob(f".*{UNFINISHED}"):
        if path.is_file():
            yield path
