"""Keeps the log of a table short: properties, checkpoints, and removal of old commits.

A checkpoint has every transaction number, so batches stay written once after their commits are
removed.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.run.maintenance.opened import Opened
from app.tables import durable
from app.tables.log_properties import CHECKPOINT_COMMITS, log_properties

if TYPE_CHECKING:
    from app.config.maintenance import MaintenanceSettings

_NUMBERED = re.compile(r"^(\d{20})\.(?:(json)|checkpoint\..*)$")
_VERSIONS = re.compile(r"^(\d{20})\.")


@dataclass(frozen=True)
class LogSize:
    """The files of a log."""

    files: int
    bytes: int
    since_checkpoint: int
    """Commits that a reader opens one by one."""


def size(opened: Opened) -> LogSize:
    """The length of a table's log."""
    files = _files(opened)
    numbered = [match for info in files if (match := _NUMBERED.match(info.base_name))]
    checkpoint = max((int(match[1]) for match in numbered if not match[2]), default=-1)
    since = sum(1 for match in numbered if match[2] and int(match[1]) > checkpoint)
    return LogSize(len(files), sum(info.size for info in files), since)


def outdated(opened: Opened, settings: MaintenanceSettings) -> dict[str, str]:
    """Properties of a table that differ from the configured ones."""
    there = opened.delta.metadata().configuration
    return {
        key: value
        for key, value in log_properties(settings.history_ms, opened.name).items()
        if there.get(key) != value
    }


def shorten(opened: Opened, settings: MaintenanceSettings, before: LogSize) -> None:
    """Write a checkpoint if one is due, and remove commits that no version of the history needs."""
    if before.since_checkpoint >= CHECKPOINT_COMMITS:
        _write_checkpoint(opened)
    # The properties in force are those of the version that is open.
    opened.delta.update_incremental()
    opened.delta.cleanup_metadata()


def begin_anew(opened: Opened, erase: bool) -> None:
    """Write a checkpoint, after which `shorten` can remove all earlier commits once they are older
    than the history. With `erase` they are removed now, which is safe only while nobody reads the
    table.
    """
    _write_checkpoint(opened)
    for info in _files(opened) if erase else ():
        version = _VERSIONS.match(info.base_name)
        if version and int(version[1]) < opened.delta.version():
            with suppress(FileNotFoundError):  # delta-rs removes commits that are old
                opened.files.delete_file(info.path)


def _write_checkpoint(opened: Opened) -> None:
    opened.delta.update_incremental()
    opened.delta.create_checkpoint()
    if opened.warehouse.folder is not None:
        durable.sync(opened.warehouse.folder)  # before the commits go that it stands for


def _files(opened: Opened) -> list[Any]:
    import pyarrow.fs as pafs

    found = opened.files.get_file_info(pafs.FileSelector("_delta_log", allow_not_found=True))
    return [info for info in found if info.type == pafs.FileType.File]
