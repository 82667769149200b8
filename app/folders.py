"""What is in a folder that others write to and clean up, and files that are written at once.

Between listing a folder and looking at one of its files the file may be removed, and so may the
folder. So folders are listed here alone, and what has gone meanwhile is left out.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from glob import glob
from pathlib import Path
from typing import Any, NamedTuple

GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE)
"""Errors of what no longer exists; ESTALE of files that another machine has removed."""


class FolderFile(NamedTuple):
    """A file as it was when it was looked at."""

    path: Path
    bytes: int
    changed_ns: int
    """Time of its last change, since the epoch."""


def look(path: Path) -> os.stat_result | None:
    """The status of what is at a path; None if there is nothing."""
    try:
        return path.stat()
    except OSError as error:
        if error.errno in GONE:
            return None
        raise


def text(path: Path) -> str:
    """The text of a file; empty if there is no file."""
    try:
        return path.read_text("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return ""


def put(path: Path, content: str | bytes) -> None:
    """Write a file. An error of the disk names it, which that of an open file does not."""
    try:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def names(folder: Path) -> list[str]:
    """The names of all that is in a folder, in order; none if there is no folder."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names, not paths
    except OSError as error:
        if error.errno in GONE:
            return []
        raise


def files(folder: Path) -> list[FolderFile]:
    """The files in a folder, in the order of their names."""
    return list(listed(folder / name for name in names(folder)))


def files_below(folder: Path) -> Iterator[FolderFile]:
    """The files in a folder and the folders below it, those of a folder in the order of their names.
    What the user may not read is left out.
    """
    for place, inside, there in os.walk(folder):
        inside.sort()
        yield from listed(Path(place, name) for name in sorted(there))


def matching(folder: Path, pattern: str) -> list[Path]:
    """What a pattern of the shell matches below a folder, in order; hidden names only where the
    pattern has the dot.
    """
    # `Path.glob` fails where a folder goes meanwhile, and refuses absolute patterns.
    return sorted(folder / name for name in glob(pattern, root_dir=folder, recursive=True))  # noqa: PTH207


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, onerror=_unless_gone)
    else:
        path.unlink(missing_ok=True)


def listed(paths: Iterable[Path]) -> Iterator[FolderFile]:
    """Those of some paths that are files."""
    for path in paths:
        found = look(path)
        if found is not None and stat.S_ISREG(found.st_mode):
            yield FolderFile(path, found.st_size, found.st_mtime_ns)


def _unless_gone(_call: Callable[..., Any], _path: str, raised: Any) -> None:
    error = raised[1]
    if not isinstance(error, OSError) or error.errno not in GONE:
        raise error
