"""The commit files of a local Delta log, and those that have lost their contents.

A file system that lost its power may keep a file's name without its contents. Readers of Delta pass
over such a commit: its rows are missing, and nothing says so.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from app.errors import UserError
from app.terminal.program import PROGRAM
from app.warehouse.time_travel import COMMIT


def commit_files(location: str) -> list[Path]:
    """The commits of a table in a local folder, oldest first; none where there is no log."""
    return [path for path, _ in _sizes(location)]


def empty_commits(location: str) -> list[Path]:
    """Those without contents, oldest first."""
    return [path for path, size in _sizes(location) if size == 0]


def unfinished_commit(location: str) -> Path | None:
    """The newest commit, if its file is empty or ends within an action."""
    newest = commit_files(location)[-1:]
    return next((path for path in newest if not _ends_whole(path)), None)


def require_contents(location: str, last: int | None = None) -> None:
    """UserError if a commit is empty, of those up to the version `last` if it is given."""
    for path in empty_commits(location):
        if last is None or int(path.stem) <= last:
            raise UserError(
                f"warehouse: the table {location} has lost the rows of a commit, whose file is "
                f"empty ({path})\nput the table back from a copy; {PROGRAM} doctor says "
                "whether the query can write them again"
            )


def _ends_whole(path: Path) -> bool:
    lines = path.read_text(errors="replace").splitlines()
    try:
        return bool(lines) and isinstance(json.loads(lines[-1]), dict)
    except ValueError:
        return False


def _sizes(location: str) -> list[tuple[Path, int]]:
    found = []
    folder = Path(location, "_delta_log")
    for path in folder.iterdir() if folder.is_dir() else ():
        if COMMIT.match(path.name):
            with suppress(FileNotFoundError):  # old files of a log are removed
                found.append((path, path.stat().st_size))
    return sorted(found)
