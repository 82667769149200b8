"""Merges small files of a table into larger ones, in the order of the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.engine.payloads import STAGED
from app.run.maintenance.merging import merges
from app.run.maintenance.opened import Opened
from app.run.maintenance.rewriting import Rewriter
from app.tables.data_files import data_files

if TYPE_CHECKING:
    from app.config.maintenance import MaintenanceSettings

LEFT_ALONE = (STAGED,)
"""Tables whose rows are referenced by file and place."""
PASSES = 4
"""Most passes: a merged file may complete the next tier."""


@dataclass(frozen=True)
class Merged:
    """Effects of a compaction."""

    before: int = 0
    """Number of merged files."""
    after: int = 0
    """Number of files that replaced them."""


def planned(opened: Opened, settings: MaintenanceSettings, now_ms: int) -> Merged:
    """The first merges of a compaction."""
    if opened.name in LEFT_ALONE:
        return Merged()
    groups = merges(data_files(opened.delta), settings.file_bytes, now_ms)
    return Merged(sum(map(len, groups)), len(groups))


def compact(opened: Opened, settings: MaintenanceSettings, now_ms: int) -> Merged:
    """Merge files until no tier is full. Files that another process has replaced meanwhile are left
    alone.
    """
    before = after = 0
    for _ in range(0 if opened.name in LEFT_ALONE else PASSES):
        groups = merges(data_files(opened.delta), settings.file_bytes, now_ms)
        rewriter = Rewriter(opened, settings.memory_bytes)
        kept = 0
        for group in groups:
            if rewriter.replace(group, data_change=False):
                before, after, kept = before + len(group), after + 1, kept + 1
        if not kept:
            break
    return Merged(before, after)
