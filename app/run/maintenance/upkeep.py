"""One round of maintenance: every table in turn, then leftover files beside them."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from app.config.maintenance import MaintenanceSettings
from app.engine.payloads import STAGED
from app.errors import reason
from app.read.relations import Warehouse
from app.run.maintenance import compaction, leftovers, logs, retention, staging, vacuum
from app.run.maintenance.opened import Opened
from app.tables import checkpoints, run_lock
from app.tables.data_files import data_files
from app.tables.definitions import TABLES

if TYPE_CHECKING:
    from app.config.location import Location


@dataclass(frozen=True)
class MaintainedTable:
    """A table before and after its maintenance."""

    table: str
    files: int = 0
    files_after: int = 0
    bytes: int = 0
    bytes_after: int | None = 0
    """None in a dry run: only merging shows it."""
    rows_removed: int = 0
    """Rows that were too old."""
    files_removed: int = 0
    """Files of no readable version, deleted from storage."""
    bytes_removed: int = 0
    log_bytes: int = 0
    log_bytes_after: int | None = 0
    problem: str | None = None


@dataclass(frozen=True)
class MaintenanceRound:
    """Effects of one round."""

    tables: list[MaintainedTable]
    leftovers: list[Path]


def upkeep(
    warehouse: Warehouse, maintenance: MaintenanceSettings, dry_run: bool = False
) -> MaintenanceRound:
    """Maintain every table. The `problem` of a table has the error that stopped its maintenance.

    The caller holds the lock of maintenance (`run_lock.only_maintenance`).
    """
    now_ms = time.time_ns() // 1_000_000
    retention.check(maintenance)
    warehouse.require()
    rules = retention.RetentionRules(warehouse, maintenance, now_ms)
    if not dry_run:
        _sweep_payloads(warehouse)
    found = [_table(maintenance, warehouse, name, rules, now_ms, dry_run) for name in TABLES]
    return MaintenanceRound(
        [kept for kept in found if kept], leftovers.sweep(warehouse, maintenance, dry_run)
    )


def _table(
    maintenance: MaintenanceSettings,
    warehouse: Warehouse,
    name: str,
    rules: retention.RetentionRules,
    now_ms: int,
    dry_run: bool,
) -> MaintainedTable | None:
    """Maintain a table; returns None if it does not exist."""
    kept = MaintainedTable(name)
    try:
        delta = warehouse.open(name)
        if delta is None:
            return None
        opened = Opened(warehouse, name, delta)
        before = logs.size(opened)
        files, size = _files(opened)
        kept = MaintainedTable(name, files, files, size, size, log_bytes=before.bytes)
        look = _planned if dry_run else _done
        return look(maintenance, opened, rules, now_ms, kept, before)
    except Exception as error:  # noqa: BLE001 - the other tables are maintained
        return replace(kept, bytes_after=None, log_bytes_after=None, problem=reason(error))


def _planned(
    maintenance: MaintenanceSettings,
    opened: Opened,
    rules: retention.RetentionRules,
    now_ms: int,
    kept: MaintainedTable,
    _before: logs.LogSize,
) -> MaintainedTable:
    merged = compaction.planned(opened, maintenance, now_ms)
    removed = vacuum.vacuum(opened, maintenance, dry_run=True)
    return replace(
        kept,
        files_after=kept.files - merged.before + merged.after,
        bytes_after=None,
        rows_removed=rules.apply(opened, dry_run=True),
        files_removed=removed.files,
        bytes_removed=removed.bytes,
        log_bytes_after=None,
    )


def _done(
    maintenance: MaintenanceSettings,
    opened: Opened,
    rules: retention.RetentionRules,
    now_ms: int,
    kept: MaintainedTable,
    before: logs.LogSize,
) -> MaintainedTable:
    try:
        changed = logs.outdated(opened, maintenance)
        if changed:
            opened.delta.alter.set_table_properties(changed)
        rows = rules.apply(opened, dry_run=False)
        compaction.compact(opened, maintenance, now_ms)
    finally:  # it makes room, also where there is none to write
        removed = vacuum.vacuum(opened, maintenance, dry_run=False)
    logs.shorten(opened, maintenance, before)
    files, size = _files(opened)
    return replace(
        kept,
        files_after=files,
        bytes_after=size,
        rows_removed=rows,
        files_removed=removed.files,
        bytes_removed=removed.bytes,
        log_bytes_after=logs.size(opened).bytes,
    )


def _files(opened: Opened) -> tuple[int, int]:
    files = data_files(opened.delta)
    return len(files), sum(file.bytes for file in files)


def _sweep_payloads(warehouse: Location) -> None:
    """Remove released payloads from their table, unless a run does so, or an unfinished batch may
    release them again.
    """
    queries = checkpoints.found(warehouse)
    if STAGED not in TABLES or run_lock.at_work(warehouse):
        return
    if all(checkpoints.settled(warehouse, query) for query in queries):
        staging.sweep(warehouse)
