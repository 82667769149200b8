"""Replaces names by pseudonyms in every table and page of a warehouse.

Rows stay, so that counts, alerts and pauses of other clients stay explained. Only files that hold a
name are rewritten, each exchanged in one commit, beside writers and readers. Batch numbers stay in
the log, so batches stay written once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.engine.payloads import STAGED
from app.errors import UserError, reason
from app.read.relations import Warehouse
from app.run.maintenance import logs, vacuum
from app.run.maintenance.names import Name, replacements
from app.run.maintenance.opened import Opened
from app.run.maintenance.rewriting import Rewriter
from app.tables import run_lock
from app.tables.data_files import DataFile, data_files
from app.tables.definitions import TABLES
from app.tables.small_files import PAGES, Damaged, read_text, write_text
from app.tables.small_files import names as file_names

if TYPE_CHECKING:
    from app.config.location import Location
    from app.config.maintenance import MaintenanceSettings

PASSES = 10
"""Most passes: files that another process has merged meanwhile are looked up again."""


@dataclass(frozen=True)
class Forgotten:
    """A table in which names were looked for."""

    table: str
    rows: int = 0
    """Rows that held one of the names."""
    files: int = 0
    """Files that were rewritten, or would be."""
    problem: str | None = None


def refuse(warehouse: Location, erase: bool) -> None:
    """UserError if the history cannot be erased now."""
    if erase and run_lock.at_work(warehouse):
        raise UserError(
            f"forget: --now removes what the run on {warehouse.uri} may be reading\n"
            "stop the run first; or leave --now out, and maintain removes the history in time"
        )


def forget(
    warehouse: Warehouse,
    maintenance: MaintenanceSettings,
    names: Sequence[Name],
    dry_run: bool,
    erase: bool,
) -> tuple[list[Forgotten], list[str]]:
    """Replace the names in every table and page. Returns what was found in each table, and the
    pages.

    With `erase` the history is removed as well: old files and commits, which `maintain` keeps for
    `history_ms`.
    """
    tables = []
    for name in TABLES:
        try:
            delta = warehouse.open(name)
            if delta is not None and name != STAGED:
                tables.append(
                    _Table(maintenance, Opened(warehouse, name, delta), names).forget(
                        dry_run, erase
                    )
                )
        except Exception as error:  # noqa: BLE001 - the other tables are gone through
            tables.append(Forgotten(name, problem=reason(error)))
    return tables, _pages(warehouse, names, dry_run, tables)


class _Table:
    """One table and the names to replace."""

    def __init__(
        self, maintenance: MaintenanceSettings, opened: Opened, names: Sequence[Name]
    ) -> None:
        self._own = maintenance
        self._opened = opened
        self._rewriter = Rewriter(opened, self._own.memory_bytes)
        self._values = replacements(names, opened.table)

    def forget(self, dry_run: bool, erase: bool) -> Forgotten:
        """Replace the names; returns what was found. UserError if other writers keep it from
        ending.
        """
        rows = files = 0
        for _ in range(PASSES):
            found, done = self._look(dry_run)
            rows, files = rows + found.rows, files + found.files
            if done:
                break
        else:
            raise UserError("other processes replace its files all the time\nforget again")
        if not dry_run and (files or erase):
            self._shorten(erase)
        return Forgotten(self._opened.name, rows, files)

    def _look(self, dry_run: bool) -> tuple[Forgotten, bool]:
        """Replace the names in the files of the newest version. Returns what was found, and whether
        every file could be exchanged.
        """
        rows = files = 0
        done = True
        there = data_files(self._opened.delta)
        every = self._rewriter.count_changed(there, self._values) if there and self._values else 0
        for file in there if every else ():
            named = every if len(there) == 1 else self._rewriter.count_changed([file], self._values)
            if named and (dry_run or self._renamed(file)):
                rows, files = rows + named, files + 1
            elif named:
                done = False
        return Forgotten(self._opened.name, rows, files), done

    def _renamed(self, file: DataFile) -> bool:
        return self._rewriter.replace([file], data_change=True, values=self._values)

    def _shorten(self, erase: bool) -> None:
        """Start the log with the present rows: earlier commits have the least and greatest names of
        the files that were replaced.
        """
        if erase:
            at_once = self._own.model_copy(update={"history_ms": 0, "orphans_ms": 0})
            vacuum.vacuum(self._opened, at_once, dry_run=False)
        logs.begin_anew(self._opened, erase)


def _pages(
    warehouse: Location, names: Sequence[Name], dry_run: bool, problems: list[Forgotten]
) -> list[str]:
    """Replace the names in the pages of audits; returns the pages that held one."""
    found = []
    for page in file_names(warehouse, PAGES):
        try:
            text = new = read_text(warehouse, f"{PAGES}/{page}") or ""
        except Damaged as error:
            problems.append(Forgotten(f"{PAGES}/{page}", problem=reason(error)))
            continue
        for name in names:
            new = name.replaced(new)
        if new != text:
            found.append(f"{PAGES}/{page}")
        if new != text and not dry_run:
            write_text(warehouse, f"{PAGES}/{page}", new)
    return found
