"""Merges small files of a table into larger ones, in the order of the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.ingest.payloads import STAGED
from app.maintain.merging import merges
from app.maintain.opened import Opened
from app.maintain.rewriting import Rewriter
from app.warehouse.data_files import data_files

if TYPE_CHECKING:
    from app.config.maintenance import MaintenanceSettings

LEFT_ALONE = (STAGED,)
"""Tables whose rows are known by their file and place in it."""
PASSES = 4
"""A merged file may complete the next tier."""


@dataclass(frozen=True)
class Merged:
    """What a compaction did."""

    before: int = 0
    """Files that were merged."""
    after: int = 0
    """Files that came of them."""


def planned(opened: Opened, settings: MaintenanceSettings, now_ms: int) -> Merged:
    """What a compaction would begin with."""
    if opened.name in LEFT_ALONE:
        return Merged()
    groups = merges(data_files(opened.delta), settings.file_bytes, now_ms)
    return Merged(sum(map(len, groups)), len(groups))


def compact(opened: Opened, settings: MaintenanceSettings, now_ms: int) -> Merged:
    """Merge what can be merged; files that another process has replaced meanwhile stay as they
    are."""
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
