"""The commit files of a local Delta log, and those that have lost their contents.

After a loss of power a file system may have a file's name without its contents. Delta readers skip
such a commit without an error, so its rows are missing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from app import folders
from app.errors import UserError
from app.plain_text import lines_of
from app.tables.small_files import local_path, path_in
from app.tables.time_travel import COMMIT
from app.terminal.program import PROGRAM

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from app.config.location import Location


def commit_files(location: str) -> list[Path]:
    """The commit files of a table in a local folder, oldest first; empty without a log."""
    return [path for path, _ in _sizes(location)]


def empty_commits(location: str) -> list[Path]:
    """Commit files without contents, oldest first."""
    return [path for path, size in _sizes(location) if size == 0]


def unfinished_commit(location: str) -> Path | None:
    """The newest commit file, if it is empty or ends within an action."""
    newest = commit_files(location)[-1:]
    return next((path for path in newest if not _ends_whole(path)), None)


def opened(warehouse: Location, name: str) -> DeltaTable | None:
    """A table without an incomplete commit file at the end of its log; None if there is none."""
    from deltalake import DeltaTable

    path, options = path_in(warehouse, name), warehouse.storage()
    if not DeltaTable.is_deltatable(path, options):
        return None
    file = unfinished_commit(path) if local_path(warehouse.uri) else None
    if file is None:
        return DeltaTable(path, storage_options=options)
    before = int(file.stem) - 1
    return None if before < 0 else DeltaTable(path, version=before, storage_options=options)


def require_contents(location: str, last: int | None = None) -> None:
    """UserError if a commit file is empty, of those up to the version `last` if given."""
    for path in empty_commits(location):
        if last is None or int(path.stem) <= last:
            raise UserError(
                f"warehouse: the table {location} has lost the rows of a commit, whose file is "
                f"empty ({path})\nput the table back from a copy; {PROGRAM} doctor says "
                "whether the query can write them again"
            )


def _ends_whole(path: Path) -> bool:
    lines = lines_of(path.read_bytes())
    try:
        return bool(lines) and isinstance(json.loads(lines[-1]), dict)
    except ValueError:
        return False


def _sizes(location: str) -> list[tuple[Path, int]]:
    found = folders.files(Path(location, "_delta_log"))
    return [(file.path, file.bytes) for file in found if COMMIT.match(file.path.name)]
