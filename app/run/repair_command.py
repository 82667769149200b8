"""The command `repair`: what a loss of power has left unfinished, so that a run starts again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.read.relations import Warehouse
from app.run import integrity
from app.tables import checkpoints, run_lock
from app.tables.repairable import Repairable
from app.terminal.printable import say

if TYPE_CHECKING:
    from app.config.settings import Settings


def repair(settings: Settings, dry_run: bool) -> int:
    """Remove the files whose batches are processed again without them, and print them; with `dry_run`
    print those that go first. 1 while something is missing or damaged, else 0.
    """
    where = settings.location
    Warehouse.of(where).require()
    with run_lock.only_run(where, checkpoints.found(where)):
        problems = list(integrity.of_warehouse(settings))
        while one := next((each for each in problems if isinstance(each, Repairable)), None):
            say(one.partition("\n")[0])
            for file in one.files:
                say(f"  {'would remove' if dry_run else 'removed'} {file}")
                if not dry_run:
                    file.unlink(missing_ok=True)
            if dry_run:
                return 1
            # What is left to do may be another thing without these files.
            problems = list(integrity.of_warehouse(settings))
    for text in problems or ["Nothing is damaged: a run goes on where it was."]:
        say(text)
    return 1 if problems else 0
