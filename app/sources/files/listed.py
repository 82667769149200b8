"""The files below a path or a pattern, as Spark lists them, without Spark."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow.fs as pafs

from app.sources.files.line_files import folder
from app.sources.files.open_file import OPENED, absolute, scheme_of


class Listed(NamedTuple):
    """A file, and what changes when it does."""

    path: str
    size: int
    changed_ns: int


def listed(path: str) -> list[Listed]:
    """The files at a path of a folder, a file or a pattern, in the order of their names.

    As in Spark, hidden files and folders (`.` and `_`) are left out, and a folder that the
    pattern matches includes everything below it.
    """
    return sorted(file for file, is_hidden in _matching(path) if not is_hidden)


def hidden(path: str) -> list[Listed]:
    """The files at such a path that are left out because their name, or that of a folder below the
    source's, begins with `.` or `_`.
    """
    return sorted(file for file, is_hidden in _matching(path) if is_hidden)


def _matching(path: str) -> Iterator[tuple[Listed, bool]]:
    """The files at a path, each with whether it is hidden."""
    path = absolute(path)
    base = folder(path)
    pattern = path[len(base) :].strip("/")
    matches = re.compile(translated(pattern)).fullmatch if pattern else None
    system, root = _opened(base)
    for info in system.get_file_info(pafs.FileSelector(root, allow_not_found=True, recursive=True)):
        name = info.path[len(root) :].lstrip("/")
        if info.type != pafs.FileType.File:
            continue
        parts = name.split("/")
        above = (posixpath.join(*parts[:n]) for n in range(1, len(parts) + 1))
        if matches is None or any(matches(part) for part in above):
            file = Listed(f"{base}/{name}", info.size or 0, info.mtime_ns or 0)
            yield file, any(part.startswith((".", "_")) for part in parts)


def translated(pattern: str) -> str:
    """A pattern of Hadoop's file systems as a regular expression: * ? [a-z] [^a] {a,b} and \\."""
    out, depth, at = [], 0, 0
    while at < len(pattern):
        char = pattern[at]
        end = pattern.find("]", at + 2) if char == "[" else -1
        if char == "\\" and at + 1 < len(pattern):
            at += 1
            out.append(re.escape(pattern[at]))
        elif char == "*":
            out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif end > 0:
            inside = pattern[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            out.append("[" + ("^" + inside[1:] if inside[0] in "!^" else inside) + "]")
            at = end
        elif char == "{":
            out.append("(?:")
            depth += 1
        elif char == "}" and depth:
            out.append(")")
            depth -= 1
        elif char == "," and depth:
            out.append("|")
        else:
            out.append(re.escape(char))
        at += 1
    return "".join(out)


def _opened(base: str) -> tuple[pafs.FileSystem, str]:
    """The file system of a folder and the folder's path in it."""
    scheme = scheme_of(base)
    if scheme is None:
        return pafs.LocalFileSystem(), base
    root, _, key = base.partition("://")[2].partition("/")
    system, start = pafs.FileSystem.from_uri(f"{OPENED[scheme]}://{root}")
    return system, f"{start.rstrip('/')}/{key}".rstrip("/")
