"""The rows committed to the tables of a warehouse since they were last read.

A table is followed by its log: the files of each new commit that added rows. Compaction adds files
as well, with rows that were there before; the log marks it. Where the log has no mark (a table made
anew, rows rewritten, a commit that is gone, a file compacted away before it was read) everything is
read again from the start, which gives the same answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from app.read.relations import Warehouse, require_plain_rows
from app.tables.time_travel import commits


class StartAnew(Exception):
    """The rows read before are no longer those of the table: read it again from the start."""


@dataclass
class Followed:
    """A table and how far it has been read; version -1: not at all."""

    delta: DeltaTable
    commit: list[bytes] | None = None
    """The commit of its version as it was last looked at: another one means another table."""
    version: int = -1


@dataclass(frozen=True)
class News:
    """Files with rows that have not been read, of one table, and the version that they lead to."""

    followed: Followed
    version: int
    files: list[str]


class TableFollower:
    """Follows the tables of a warehouse."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._tables: dict[str, Followed] = {}

    def news(self, name: str) -> News | None:
        """The new rows of a table; None if it does not exist yet.

        Nothing is taken as read until `done`. StartAnew if the whole table must be read again, a
        UserError if it cannot be.
        """
        table = self._follow(name)
        if table is None:
            return None
        version = table.delta.version()
        if version == table.version:
            return News(table, version, [])
        there = {unquote(path) for path in table.delta.get_add_actions().column("path").to_pylist()}
        if table.version < 0:
            return News(table, version, sorted(there))
        location = self._warehouse.location(name)
        wanted = range(table.version + 1, version + 1)
        files: list[str] = []
        for found in commits(location, self._warehouse.storage_options, wanted):
            if found is None:
                raise StartAnew
            files += _added(found)
        if not there.issuperset(files):
            raise StartAnew
        return News(table, version, files)

    def look(self, name: str) -> DeltaTable | None:
        """A table as its log stands; None if there is none yet. StartAnew if it was made anew."""
        table = self._follow(name)
        return None if table is None else table.delta

    def done(self, news: Iterable[News]) -> None:
        """These rows have been read."""
        for one in news:
            one.followed.version = one.version

    def forget(self) -> None:
        """Read everything again."""
        self._tables.clear()

    def _follow(self, name: str) -> Followed | None:
        known = self._tables.get(name)
        if known is None:
            delta = self._warehouse.open(name)
            if delta is None:
                return None
            return self._tables.setdefault(name, Followed(delta, self._commit(name, delta)))
        commit = self._commit(name, known.delta)
        if commit != known.commit and (commit is not None or self._warehouse.open(name) is None):
            self._tables.pop(name)
            raise StartAnew
        try:
            known.delta.update_incremental()
        except (DeltaError, OSError) as error:
            # Created again, or not reachable: opening it shows which.
            self._tables.pop(name)
            self._warehouse.open(name)
            raise StartAnew from error
        require_plain_rows(known.delta, self._warehouse.location(name))
        known.commit = self._commit(name, known.delta)
        return known

    def _commit(self, name: str, delta: DeltaTable) -> list[bytes] | None:
        """The commit of a table's version; None where the log no longer has it."""
        location = self._warehouse.location(name)
        (found,) = commits(location, self._warehouse.storage_options, [delta.version()])
        return found


def _added(lines: Iterable[bytes]) -> list[str]:
    """The files that a commit added rows with; StartAnew if it rewrote or replaced rows."""
    added: list[str] = []
    removed = False
    for line in lines:
        entry: dict[str, Any] = json.loads(line)
        if "add" in entry and entry["add"].get("dataChange", True):
            added.append(unquote(entry["add"]["path"]))
        removed = removed or ("remove" in entry and entry["remove"].get("dataChange", True))
    if added and removed:
        raise StartAnew
    return added
