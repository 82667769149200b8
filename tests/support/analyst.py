"""Whoever keeps tables in order with tools of their own: `python -m tests.support.analyst WAREHOUSE`.

Round by round, until its input ends, another of OPERATIONS is done with each table that there is, and a
line is printed. What conflicts with a commit of the run is left for the next round. With a further word,
`resting`, a round is followed by as long a rest.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from tests.support.waiting import wait_for

KEY = "cluster"
"""A column of every table that is touched."""
OPERATIONS: dict[str, Callable[[DeltaTable], object]] = {
    "compact": lambda table: table.optimize.compact(),
    "z-order": lambda table: table.optimize.z_order([KEY]),
    "comment": lambda table: table.alter.set_column_metadata(KEY, {"comment": "which cluster"}),
    "vacuum": lambda table: table.vacuum(dry_run=False),
    "changes": lambda table: table.alter.set_table_properties(
        {"delta.enableChangeDataFeed": "true"}
    ),
    "constraint": lambda table: table.alter.add_constraint(
        {"named": f"{KEY} IS NULL OR {KEY} <> 'nobody'"}
    ),
    "vacuum-at-once": lambda table: table.vacuum(
        retention_hours=0, enforce_retention_duration=False, dry_run=False
    ),
    "no-constraint": lambda table: table.alter.drop_constraint("named", raise_if_not_exists=False),
}


def tables(warehouse: Path) -> Iterator[DeltaTable]:
    """The tables with the column, as they are now."""
    for log in sorted(warehouse.glob("*/_delta_log")):
        try:
            table = DeltaTable(log.parent)
        except TableNotFoundError:  # its first commit is under way
            continue
        if KEY in {field.name for field in table.schema().fields}:
            yield table


def main(warehouse: str, resting: str = "") -> None:
    """Work until nobody listens any more."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    for name in (name for _ in count() for name in OPERATIONS):
        began = time.monotonic()
        for table in tables(Path(warehouse)):
            try:
                OPERATIONS[name](table)
            except CommitFailedError:
                continue
        print(name, flush=True)
        if ended.wait(time.monotonic() - began if resting else 0):
            return


class Analyst:
    """One at work in a process of its own."""

    def __init__(self, warehouse: str, *words: str) -> None:
        self.done: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.analyst", warehouse, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.done.append(line.strip())

    def wait_for_rounds(self, more: int) -> None:
        """Until so many more rounds are done; an error if the process has ended."""
        until = len(self.done) + more
        wait_for(lambda: len(self.done) >= until or self._process.poll() is not None)
        assert self._process.poll() is None

    def end(self) -> None:
        """Let the last round end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait() == 0


@contextmanager
def at_work(warehouse: str, *, resting: bool = False) -> Iterator[Analyst]:
    """An analyst, until the end of the body; one that rests takes half a core at most."""
    analyst = Analyst(warehouse, *["resting"] * resting)
    try:
        yield analyst
    finally:
        analyst.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
