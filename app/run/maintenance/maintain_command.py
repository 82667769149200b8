"""The command `maintain`: one round, and a table of its effects."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from dataclasses import asdict, fields
from typing import TYPE_CHECKING

from app.read.relations import Warehouse
from app.run.maintenance.upkeep import MaintainedTable, MaintenanceRound, upkeep
from app.tables.run_lock import only_maintenance
from app.terminal.printable import say
from app.terminal.rows import write_table
from app.terminal.sizes import size_text

if TYPE_CHECKING:
    from app.config.settings import Settings


def maintain_command(settings: Settings, dry_run: bool = False, as_json: bool = False) -> int:
    """Maintain the warehouse, or print what would be done; returns 1 if a table could not be
    maintained.
    """
    Warehouse.of(settings.location).require()
    with nullcontext() if dry_run else only_maintenance(settings.location):
        done = upkeep(Warehouse.of(settings.location), settings.maintenance, dry_run)
    if as_json:
        print(
            json.dumps(
                {
                    "dry_run": dry_run,
                    "tables": [asdict(kept) for kept in done.tables],
                    "leftovers": [str(path) for path in done.leftovers],
                }
            )
        )
    else:
        _print(done, dry_run)
    return 1 if any(kept.problem for kept in done.tables) else 0


def _print(done: MaintenanceRound, dry_run: bool) -> None:
    names = [field.name for field in fields(MaintainedTable)]
    if not any(kept.problem for kept in done.tables):
        names.remove("problem")
    if dry_run:
        names = [name for name in names if not name.endswith("bytes_after")]
    rows = [[getattr(kept, name) for name in names] for kept in done.tables]
    write_table(names, rows, sys.stdout, None)
    verb = "would remove" if dry_run else "removed"
    for path in done.leftovers:
        say(f"{verb} {path}")
    say(summary(done, dry_run))


def summary(done: MaintenanceRound, dry_run: bool = False) -> str:
    """A round in one line."""
    before, after = (sum(getattr(k, n) for k in done.tables) for n in ("files", "files_after"))
    gone = sum(kept.files_removed for kept in done.tables)
    size = sum(kept.bytes_removed for kept in done.tables)
    text = (
        f"{len(done.tables)} tables: {before:,} files {'would become' if dry_run else 'became'}"
        f" {after:,}; {gone:,} files ({size_text(size)}) of no version in the history"
        f" {'would be ' if dry_run else ''}removed"
    )
    if not dry_run:
        log, kept = (
            sum(getattr(k, n) or 0 for k in done.tables) for n in ("log_bytes", "log_bytes_after")
        )
        text += f"; logs {size_text(log)}, now {size_text(kept)}"
    return text
