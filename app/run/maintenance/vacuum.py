"""Deletes data files that no version of the history needs.

Replaced files stay for the history, because readers may use them. A file that no version names may
belong to a batch that is not yet committed, so it stays longer.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from app import folders
from app.config.maintenance import HOUR_MS
from app.run.maintenance.opened import Opened
from app.tables.archive_files import awaited
from app.tables.data_files import data_files

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from app.config.maintenance import MaintenanceSettings


@dataclass(frozen=True)
class Removed:
    """Files that were deleted, or would be."""

    files: int
    bytes: int


def vacuum(opened: Opened, settings: MaintenanceSettings, dry_run: bool) -> Removed:
    """Delete replaced files older than the history, and files of no version older than `orphans_ms`
    that no batch needs, however the clock has moved.
    """
    opened.delta.update_incremental()
    replaced = _due(opened, settings.history_ms, full=False)
    orphans = _orphans(opened, settings)
    removed = _sizes(opened, {*replaced, *orphans})
    for path in () if dry_run else orphans:  # first: it needs no room
        with suppress(FileNotFoundError):
            opened.files.delete_file(path)
    # A vacuum is two commits, also where there is nothing to remove.
    if replaced and not dry_run:
        opened.delta.vacuum(
            retention_hours=_hours(settings.history_ms),
            dry_run=False,
            enforce_retention_duration=False,
        )
    return removed


def _hours(kept_ms: int) -> int:
    return -(-kept_ms // HOUR_MS)


def _due(opened: Opened, kept_ms: int, full: bool) -> set[str]:
    """Paths that Delta would delete; `full` includes those of no version."""
    found = opened.delta.vacuum(
        retention_hours=_hours(kept_ms), full=full, dry_run=True, enforce_retention_duration=False
    )
    return {unquote(path.removeprefix(opened.location).lstrip("/")) for path in found}


def _orphans(opened: Opened, settings: MaintenanceSettings) -> set[str]:
    """Files of no version that nothing needs. First they are listed, then what waits for a commit,
    then what is committed: a file is in one of the two when it becomes part of the table meanwhile.
    """
    found = _due(opened, max(settings.orphans_ms, settings.history_ms), full=True)
    folder = opened.warehouse.folder
    if found and folder is not None:
        since_s, waiting = awaited(opened.warehouse, opened.name)
        # The file system may have another clock than this process.
        since_s = min(since_s, _now_s(folder) - settings.orphans_ms / 1000)
        there = {path: folders.look(folder / opened.name / path) for path in found - waiting}
        found = {path for path, about in there.items() if about and about.st_mtime < since_s}
    opened.delta.update_incremental()
    return found - {file.plain_path for file in data_files(opened.delta)}


def _now_s(folder: Path) -> float:
    with tempfile.TemporaryFile(dir=folder) as file:
        return os.fstat(file.fileno()).st_mtime


def _sizes(opened: Opened, paths: Iterable[str]) -> Removed:
    import pyarrow.fs as pafs

    wanted = list(paths)
    infos = opened.files.get_file_info(wanted) if wanted else []
    there = [info for info in infos if info.type == pafs.FileType.File]
    return Removed(len(there), sum(info.size for info in there))
