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
from app.maintain.forgetting import Forgotten, forget, refuse
from app.maintain.names import COLUMNS, Name
from app.terminal.printable import say
from app.terminal.rows import write_table
from app.warehouse import run_lock
from app.warehouse.reach import require_delta_rs
from app.warehouse.relations import Warehouse

if TYPE_CHECKING:
    from app.config.settings import Settings

MINUTE_MS = 60_000


def forget_command(
    settings: Settings, names: Mapping[str, Sequence[str]], dry_run: bool = False,
    erase: bool = False, as_json: bool = False,
) -> int:
    """Forget names, given by their kind; returns 1 if a table could not be done."""
    require_delta_rs(settings.warehouse)
    wanted = [
        name for kind, texts in names.items() for text in texts for name in Name.given(kind, text)
    ]
    if not wanted:
        options = ", ".join(f"--{kind.replace('_', '-')}" for kind in COLUMNS)
        raise UserError(f"forget: names nobody\ngive one or more of {options}")
    Warehouse.of(settings).require()
    with nullcontext() if dry_run else run_lock.only_maintenance(settings):
        refuse(settings, erase)
        tables, pages = forget(settings, wanted, dry_run, erase)
    left = still_named(settings, erase)
    if as_json:
        print(json.dumps({
            "dry_run": dry_run, "tables": [asdict(table) for table in tables], "pages": pages,
            "still_named": left,
        }))
    else:
        _print(tables, pages, left, dry_run)
    return 1 if any(table.problem for table in tables) else 0


def still_named(settings: Settings, erase: bool) -> list[str]:
    """Places that may hold the names after the command, one line each."""
    history, idle = (
        f"{ms // MINUTE_MS} min" for ms in (settings.maintenance.history_ms, settings.idle_state_ms)
    )
    before = f"history of the tables (--as-of): until maintain removes it, in {history} or later"
    return [
        *([] if erase else [before]),
        f"state of the queries (_weir/checkpoints): until {idle} of event time after"
        " the last record of the name; rows that they write until then have it",
        "rows that wait for a common commit (_weir/checkpoints): until the run, or its next start,"
        " commits them; forget again then",
        "chunk_payloads, and payloads in other tables: not searched",
        "polls of an admin interface, of consumer groups or of producer states (_weir): until"
        " their batch has ended; what they remember of live ids: until the ids expire",
        "the source (Kafka, files), the configuration, reports and exports: not Weir's to change",
    ]


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
