"""Finds the version of a Delta table at a moment, by the times in its commits.

delta-rs uses the modification times of the log's files, which a copy of a warehouse does not
preserve.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from app.errors import UserError
from app.plain_text import lines_of
from app.tables.object_store import file_system

COMMIT = re.compile(r"^(\d{20})\.json$")
MAINTENANCE = "weir.maintenance"
"""Key in a commit's own data with the kind of maintenance that made it."""
COMPACTION, RETENTION = "compaction", "retention"
_SAME_ROWS = frozenset({"VACUUM START", "VACUUM END", "OPTIMIZE", "SET TBLPROPERTIES"})
"""Operations that change no row."""


def version_at(location: str, storage_options: dict[str, str], at_ms: int) -> int | None:
    """The newest version committed at or before `at_ms`; None if the table was created later.

    A UserError if the log no longer reaches back that far.
    """
    import pyarrow.fs as pafs

    folder = pafs.FileSelector("_delta_log", allow_not_found=True)
    versions = sorted(
        int(found[1])
        for info in file_system(location, storage_options).get_file_info(folder)
        if (found := COMMIT.match(info.base_name))
    )
    low, high = 0, len(versions)
    while low < high:
        half = (low + high) // 2
        if _time_of(_info(_lines(location, storage_options, versions[half]))) <= at_ms:
            low = half + 1
        else:
            high = half
    if low:
        return versions[low - 1]
    if versions and versions[0] > 0:
        raise UserError(
            f"--as-of: the log of {location} begins after that time, at version {versions[0]}\n"
            "take a later time; how long a log is kept is its property delta.logRetentionDuration"
        )
    return None


def rows_changed_in(
    location: str, storage_options: dict[str, str], version: int
) -> tuple[int, int | None]:
    """The newest version up to this one that changed rows, and the time of its commit (ms since the
    epoch; None if the log no longer has it).

    If the log does not reach back to it, its oldest version is returned.
    """
    found: tuple[int, int | None] = version, None
    wanted = range(version, -1, -1)
    for number, lines in zip(wanted, commits(location, storage_options, wanted), strict=True):
        if lines is None:
            break
        info = _info(lines)
        found = number, _time_of(info)
        same_rows = info.get("operation") in _SAME_ROWS or info.get(MAINTENANCE) == COMPACTION
        if not same_rows:
            break
    return found


def commits(
    location: str, storage_options: dict[str, str], versions: Iterable[int]
) -> Iterator[list[bytes] | None]:
    """The lines of each of these commits; None for one that the log no longer has."""
    for version in versions:
        try:
            yield _lines(location, storage_options, version)
        except FileNotFoundError:
            yield None


def _info(lines: Iterable[bytes]) -> dict[str, Any]:
    """The commit's own data (`commitInfo`), from its first lines."""
    for line in lines:
        info: dict[str, Any] | None = json.loads(line).get("commitInfo")
        if info is not None:
            return info
    return {}


def _time_of(info: dict[str, Any]) -> int:
    return int(info.get("inCommitTimestamp", info.get("timestamp", 0)))


def _lines(location: str, storage_options: dict[str, str], version: int) -> list[bytes]:
    """The lines of a commit."""
    name = f"_delta_log/{version:020}.json"
    with file_system(location, storage_options).open_input_file(name) as file:
        return lines_of(bytes(file.read()))
