"""Deletes data files that no version of the history needs.

Replaced files stay for the history, because readers may use them. A file that no version names may
belong to a batch that is not yet committed, so it stays longer.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from app.config.maintenance import HOUR_MS
from app.run.maintenance.opened import Opened
from app.tables.archive_files import waiting_since_s

if TYPE_CHECKING:
    from collections.abc import Iterable

    from app.config.maintenance import MaintenanceSettings


@dataclass(frozen=True)
class Removed:
    """Files that were deleted, or would be."""

    files: int
    bytes: int


def vacuum(opened: Opened, settings: MaintenanceSettings, dry_run: bool) -> Removed:
    """Delete replaced files older than the history, and files of no version older than
    `orphans_ms`; none of the latter while one that old waits for a commit (`archive_files`).
    """
    hours = [
        (-(-settings.history_ms // HOUR_MS), False),
        (-(-max(settings.orphans_ms, settings.history_ms) // HOUR_MS), True),
    ]
    waits_s = waiting_since_s(opened.warehouse, opened.name)
    if waits_s is not None and time.time() - waits_s >= settings.orphans_ms / 1000:
        hours = hours[:1]
    opened.delta.update_incremental()
    due = [
        opened.delta.vacuum(
            retention_hours=kept, full=full, dry_run=True, enforce_retention_duration=False
        )
        for kept, full in hours
    ]
    removed = _sizes(opened, {path for paths in due for path in paths})
    for (kept, full), paths in zip(hours, due, strict=True):
        # A vacuum is two commits, also where there is nothing to remove.
        if paths and not dry_run:
            opened.delta.vacuum(
                retention_hours=kept, full=full, dry_run=False, enforce_retention_duration=False
            )
    return removed


def _sizes(opened: Opened, paths: Iterable[str]) -> Removed:
    import pyarrow.fs as pafs

    wanted = [unquote(path.removeprefix(opened.location).lstrip("/")) for path in paths]
    infos = opened.files.get_file_info(wanted) if wanted else []
    there = [info for info in infos if info.type == pafs.FileType.File]
    return Removed(len(there), sum(info.size for info in there))
