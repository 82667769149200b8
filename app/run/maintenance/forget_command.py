"""The command `forget`: replaces names by pseudonyms, and lists the places that may still hold
them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING

from app.errors import UserError
from app.read.relations import Warehouse
from app.run.maintenance import forget_key
from app.run.maintenance.forgetting import Forgotten, forget, refuse
from app.run.maintenance.names import COLUMNS, Name
from app.run.maintenance.still_named import still_named
from app.tables import run_lock
from app.terminal.printable import say
from app.terminal.rows import write_table

if TYPE_CHECKING:
    from app.config.settings import Settings


def forget_command(
    settings: Settings,
    names: Mapping[str, Sequence[str]],
    dry_run: bool = False,
    erase: bool = False,
    as_json: bool = False,
) -> int:
    """Forget names, given by their kind; returns 1 if a table could not be done, or a file not be
    searched.
    """
    if not any(names.values()):
        options = ", ".join(f"--{kind.replace('_', '-')}" for kind in COLUMNS)
        raise UserError(f"forget: names nobody\ngive one or more of {options}")
    warehouse = Warehouse.of(settings.location)
    warehouse.require()
    with nullcontext() if dry_run else run_lock.only_maintenance(warehouse):
        refuse(warehouse, erase)
        key = forget_key.load(warehouse)
        wanted = [
            name
            for kind, texts in names.items()
            for text in texts
            for name in Name.given(kind, text, key.key)
        ]
        if not dry_run:
            key = forget_key.begin(warehouse, key, wanted)
        tables, pages = forget(warehouse, settings.maintenance, wanted, dry_run, erase)
        if not dry_run and not any(table.problem for table in tables):
            forget_key.end(warehouse, key, wanted)
    unread: list[str] = []
    left = still_named(settings, wanted, erase, unread)
    if as_json:
        print(
            json.dumps(
                {
                    "dry_run": dry_run,
                    "tables": [asdict(table) for table in tables],
                    "pages": pages,
                    "still_named": left,
                    "not_searched": unread,
                }
            )
        )
    else:
        _print(tables, pages, [*left, *unread], dry_run)
    return 1 if unread or any(table.problem for table in tables) else 0


def _print(
    tables: Sequence[Forgotten], pages: Sequence[str], left: Sequence[str], dry_run: bool
) -> None:
    found = [table for table in tables if table.rows or table.problem]
    columns = ["table", "rows", "files", "problem"][: 4 if any(t.problem for t in found) else 3]
    write_table(columns, [[getattr(t, c) for c in columns] for t in found], sys.stdout, None)
    for page in pages:
        say(f"{'would change' if dry_run else 'changed'} {page}")
    rows, files = (sum(getattr(table, n) for table in tables) for n in ("rows", "files"))
    verb = "would get" if dry_run else "got"
    say(f"{len(tables)} tables searched: {rows:,} rows in {files:,} files {verb} pseudonyms")
    say("may still have the names:")
    for line in left:
        say(f"  {line}")
